// Part of KvCache: compaction. It moves the kept slots to the front and frees blocks.
#include "kv/store/kv_cache.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>

namespace keel {

OpHandle KvCache::plan_gather(Executor &executor, const KvShape &shape, uint32_t n_sides) {
    const KvTemplate kv(shape);
    const int64_t slots = shape.blocks_per_head() * shape.block_slots;
    const Tensor index = Tensor::shape(KEEL_DTYPE_I32, {shape.kv_heads, slots});
    const Tensor count = Tensor::shape(KEEL_DTYPE_I32, {shape.kv_heads});
    const Tensor side = Tensor::shape(KEEL_DTYPE_F32, {shape.kv_heads, slots});
    const std::vector<const keel_tensor *> sides(n_sides, side.c());
    keel_kv_gather_args args = {KEEL_HEADER(keel_kv_gather_args)};
    args.from = args.to = kv.view();
    args.index = index.c();
    args.count = count.c();
    args.sides = sides.data();
    args.n_sides = n_sides;
    return executor.plan(KEEL_OP_KV_GATHER, args, {.role = Role::kv_compaction});
}

bool KvCache::is_identity(uint32_t layer, const KeepLists &keep) const {
    for (uint32_t h = 0; h < shape().kv_heads; ++h) {
        if (static_cast<int64_t>(keep[h].size()) != length(layer, h)) return false;
    }
    // the list ascends and has as many entries as the head has slots, so it keeps all slots
    return true;
}

// Returns true if the kept slots need a new block in place of block i. A compaction never writes to
// a shared block, and it does not change a head that keeps all slots.
bool KvCache::needs_fresh(uint32_t layer, uint32_t h, size_t kept, size_t i) const {
    const Head &own = heads_[layer * shape().kv_heads + h];
    return kept != own.positions.size() && arena_->is_shared(layer, own.blocks[i]);
}

bool KvCache::can_compact(std::span<const KeepLists> keep, std::string *why) const {
    uint64_t wanted = 0;
    for (uint32_t l = 0; l < keep.size(); ++l) {
        uint64_t of_layer = 0;
        for (uint32_t h = 0; h < shape().kv_heads; ++h) {
            const size_t kept = keep[l][h].size();
            for (size_t i = 0; i < static_cast<size_t>(blocks_for(static_cast<int64_t>(kept))); ++i)
                of_layer += needs_fresh(l, h, kept, i) ? 1 : 0;
        }
        if (of_layer > arena_->free_blocks(l)) {
            if (why != nullptr) {
                *why = fmt::format("a cache that shares blocks with a fork can evict only after "
                                   "Keel copied {} blocks of layer {}, but {} blocks are free; the "
                                   "cache was planned for {} sequence(s)",
                                   of_layer, l, arena_->free_blocks(l), shape().sequences);
            }
            return false;
        }
        wanted += of_layer;
    }
    if (arena_->can_take(wanted)) return true;
    if (why != nullptr) {
        *why = fmt::format(
            "an eviction must first copy {:.6g} MiB of blocks that are shared with a fork, but the "
            "limit is {}; raise kv.max_mib, use a smaller kv.dtype, or choose a policy that "
            "evicts",
            static_cast<double>(wanted * shape().block_bytes()) / bytes_per_mib,
            shape().cap_text());
    }
    return false;
}

void KvCache::unshare(uint32_t layer, const KeepLists &keep, std::vector<int32_t> &table,
                      std::vector<int32_t> &taken) {
    const KvShape &s = shape();
    const auto width = static_cast<size_t>(s.blocks_per_head());
    table.assign(size_t{s.kv_heads} * width, -1);
    taken.reserve(table.size());
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const size_t kept = keep[h].size();
        for (size_t i = 0; i < static_cast<size_t>(blocks_for(static_cast<int64_t>(kept))); ++i) {
            const bool fresh = needs_fresh(layer, h, kept, i);
            if (fresh) taken.push_back(arena_->take(layer));
            table[h * width + i] = fresh ? taken.back() : head(layer, h).blocks[i];
        }
    }
}

// Queues an op that moves the kept slots to the blocks of `table`.
void KvCache::queue_gather(uint32_t layer, const KeepLists &keep, PlannedOp &gather,
                           std::span<const Tensor> sides, std::span<const int32_t> table,
                           bool moved) {
    const KvShape &s = shape();
    refresh_view(layer); // the call that took blocks can have replaced the arenas
    keel_kv_view to = layers_[layer].view;
    if (moved) {
        gather_table_.write(table.data());
        to.block_table = gather_table_.c();
    }
    size_t longest = 1;
    for (const auto &list : keep) longest = std::max(longest, list.size());
    index_scratch_.assign(size_t{s.kv_heads} * longest, 0);
    std::vector<int32_t> counts(s.kv_heads);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        std::copy(keep[h].begin(), keep[h].end(),
                  index_scratch_.begin() + static_cast<std::ptrdiff_t>(h * longest));
        // If a head keeps all slots, none of its slots moves.
        const bool untouched = static_cast<int64_t>(keep[h].size()) == length(layer, h);
        counts[h] = untouched ? 0 : static_cast<int32_t>(keep[h].size());
    }
    const Tensor index(gather_index_.buffer(), 0, KEEL_DTYPE_I32,
                       {s.kv_heads, static_cast<int64_t>(longest)});
    index.write(index_scratch_.data());
    gather_count_.write(counts.data());
    std::vector<const keel_tensor *> side_pointers;
    for (const Tensor &side : sides) side_pointers.push_back(side.c());
    keel_kv_gather_args args = {KEEL_HEADER(keel_kv_gather_args)};
    args.from = &layers_[layer].view;
    args.to = moved ? &to : args.from;
    args.index = index.c();
    args.count = gather_count_.c();
    args.sides = side_pointers.data();
    args.n_sides = static_cast<uint32_t>(side_pointers.size());
    arena_->executor().run(gather, args);
}

uint64_t KvCache::compact(uint32_t layer, const KeepLists &keep, PlannedOp &gather,
                          std::span<const Tensor> sides) {
    const KvShape &s = shape();
    if (keep.size() != s.kv_heads)
        throw_error(ErrorKind::internal,
                    "expected one keep-list for each head, found {} keep-lists for {} heads",
                    keep.size(), s.kv_heads);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        int64_t last = -1;
        for (const int32_t slot : keep[h]) {
            if (slot <= last || slot >= length(layer, h)) {
                throw_error(ErrorKind::internal,
                            "layer {}, head {}: slot {} of the keep-list is not in ascending "
                            "order, or is not one of the head's {} slots",
                            layer, h, slot, length(layer, h));
            }
            last = slot;
        }
    }
    if (is_identity(layer, keep)) return 0;
    const uint64_t before = arena_->bytes_in_use();
    Device &device = arena_->executor().device();
    const int64_t width = s.blocks_per_head(), slots = width * s.block_slots;
    if (gather_index_.empty()) {
        gather_index_ =
            Tensor::allocate(device, KEEL_DTYPE_I32, {s.kv_heads, slots}, arena_->placement());
        gather_count_ = Tensor::allocate(device, KEEL_DTYPE_I32, {s.kv_heads}, arena_->placement());
        gather_table_ =
            Tensor::allocate(device, KEEL_DTYPE_I32, {s.kv_heads, width}, arena_->placement());
    }
    std::vector<int32_t> table, taken;
    try {
        unshare(layer, keep, table, taken);
        queue_gather(layer, keep, gather, sides, table, !taken.empty());
    } catch (...) { // for example if there is no memory left; then the new blocks are freed
        for (const int32_t block : taken) arena_->abandon(layer, block);
        throw;
    }
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        Head &own = head(layer, h);
        for (size_t j = 0; j < keep[h].size(); ++j)
            own.positions[j] = own.positions[static_cast<size_t>(keep[h][j])];
        own.positions.resize(keep[h].size());
        const auto kept = static_cast<size_t>(blocks_for(own.length()));
        for (size_t i = 0; i < kept; ++i) {
            const int32_t fresh = table[h * static_cast<size_t>(width) + i];
            if (fresh == own.blocks[i]) continue;
            arena_->release(layer, own.blocks[i]);
            set_block(layer, h, i, fresh);
        }
        drop_blocks(layer, h, kept);
    }
    const uint64_t after = arena_->bytes_in_use();
    return before > after ? before - after : 0;
}

} // namespace keel
