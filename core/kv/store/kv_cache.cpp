#include "kv/store/kv_cache.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>

namespace keel {

KvCache::KvCache(Executor &executor, const KvShape &shape, keel_buffer_kind placement)
    : KvCache(std::make_shared<KvArena>(executor, shape, placement)) {
    queue_books();
}

KvCache::KvCache(std::shared_ptr<KvArena> arena) : arena_(std::move(arena)) {
    const KvShape &s = shape();
    Device &device = arena_->executor().device();
    const int64_t rows = int64_t{s.layers} * s.kv_heads, blocks = s.blocks_per_head(),
                  slots = blocks * s.block_slots;
    take_books(device, rows, blocks, slots);
    heads_.resize(static_cast<size_t>(rows));
    for (Head &h : heads_) { // so that a growing cache allocates nothing
        h.blocks.reserve(static_cast<size_t>(blocks));
        h.positions.reserve(static_cast<size_t>(s.max_slots));
    }
    host_tables_.assign(static_cast<size_t>(rows * blocks), -1);
    host_lengths_.assign(static_cast<size_t>(rows), 0);
    layers_.resize(s.layers);
    for (uint32_t i = 0; i < s.layers; ++i) {
        Layer &layer = layers_[i];
        const int64_t row = int64_t{i} * s.kv_heads;
        layer.table = tables_.rows(row, s.kv_heads);
        layer.lengths = lengths_.rows(row, s.kv_heads);
        layer.positions = positions_.rows(row, s.kv_heads);
        layer.view.block_table = layer.table.c();
        layer.view.lengths = layer.lengths.c();
        layer.view.positions = layer.positions.c();
        layer.view.block_slots = s.block_slots;
        layer.view.kv_heads = s.kv_heads;
        layer.generation = ~uint64_t{0};
        refresh_view(i);
        views_.push_back(&layer.view);
    }
}

// Beside others' in the arena as far as there are seats.
void KvCache::take_books(Device &device, int64_t rows, int64_t blocks, int64_t slots) {
    seat_ = arena_->take_seat();
    if (seat_ >= 0) {
        tables_ = arena_->seat_tables().rows(seat_ * rows, rows);
        lengths_ = arena_->seat_lengths().rows(seat_ * rows, rows);
        positions_ = arena_->seat_positions().rows(seat_ * rows, rows);
        return;
    }
    tables_ = Tensor::allocate(device, KEEL_DTYPE_I32, {rows, blocks}, arena_->placement());
    lengths_ = Tensor::allocate(device, KEEL_DTYPE_I32, {rows}, arena_->placement());
    positions_ = Tensor::allocate(device, KEEL_DTYPE_I32, {rows, slots}, arena_->placement());
}

std::unique_ptr<KvCache> KvCache::beside(std::shared_ptr<KvArena> arena) {
    std::unique_ptr<KvCache> cache(new KvCache(std::move(arena)));
    cache->queue_books();
    return cache;
}

KvCache::~KvCache() {
    for (uint32_t l = 0; l < shape().layers; ++l) {
        for (uint32_t h = 0; h < shape().kv_heads; ++h)
            abandon_blocks(l, h, 0);
    }
    if (seat_ >= 0) arena_->leave_seat(seat_);
}

void KvCache::refresh_view(uint32_t index) {
    Layer &layer = layers_[index];
    if (layer.generation != arena_->generation(index)) {
        layer.k = arena_->keys(index);
        layer.v = arena_->values(index);
        layer.view.k = layer.k.c();
        layer.view.v = layer.v.c();
        layer.generation = arena_->generation(index);
    }
    layer.view.max_length = max_length(index);
}

int64_t KvCache::max_length(uint32_t layer) const {
    int64_t longest = 0;
    for (uint32_t h = 0; h < shape().kv_heads; ++h)
        longest = std::max(longest, length(layer, h));
    return longest;
}

int64_t KvCache::max_length() const {
    int64_t longest = 0;
    for (const Head &h : heads_)
        longest = std::max(longest, h.length());
    return longest;
}

int64_t KvCache::total_length() const {
    int64_t total = 0;
    for (const Head &h : heads_)
        total += h.length();
    return total;
}

uint64_t KvCache::bytes_in_use() const {
    uint64_t blocks = 0;
    for (const Head &h : heads_)
        blocks += h.blocks.size();
    return blocks * shape().block_bytes();
}

uint64_t KvCache::blocks_wanted(int64_t n) const {
    uint64_t wanted = 0;
    for (uint32_t l = 0; l < shape().layers; ++l) {
        for (uint32_t h = 0; h < shape().kv_heads; ++h) {
            const Head &head = heads_[l * shape().kv_heads + h];
            wanted += static_cast<uint64_t>(blocks_for(head.length() + n)) - head.blocks.size();
            const bool partial = head.length() % shape().block_slots != 0;
            if (n > 0 && partial && arena_->is_shared(l, head.blocks.back())) ++wanted;
        }
    }
    return wanted;
}

bool KvCache::fits(int64_t n, std::string *why) const {
    const int64_t longest = max_length();
    if (longest + n > shape().max_slots) {
        if (why != nullptr) {
            *why = fmt::format(
                "{} tokens are in the cache, {} more would pass model.context = {}; shorten the "
                "text, raise that key, or let a policy evict",
                longest, n, shape().max_slots);
        }
        return false;
    }
    if (!arena_->can_take(blocks_wanted(n))) {
        if (why != nullptr) {
            *why = fmt::format(
                "the KV cache holds {:.6g} MiB, {} more token(s) would pass kv.max_mib = {:.6g}; "
                "raise "
                "that key, keep keys and values in a smaller kv.dtype, or let a policy evict",
                static_cast<double>(arena_->bytes_in_use()) / 1048576, n,
                static_cast<double>(shape().max_bytes) / 1048576);
        }
        return false;
    }
    return true;
}

void KvCache::set_block(uint32_t layer, uint32_t h, size_t i, int32_t block) {
    Head &own = head(layer, h);
    if (i == own.blocks.size()) own.blocks.push_back(block);
    own.blocks[i] = block;
    const auto width = static_cast<size_t>(shape().blocks_per_head());
    host_tables_[(size_t{layer} * shape().kv_heads + h) * width + i] = block;
    tables_dirty_ = true;
}

int32_t KvCache::pop_block(uint32_t layer, uint32_t h) noexcept {
    Head &own = head(layer, h);
    const auto width = static_cast<size_t>(shape().blocks_per_head());
    const int32_t block = own.blocks.back();
    own.blocks.pop_back();
    host_tables_[(size_t{layer} * shape().kv_heads + h) * width + own.blocks.size()] = -1;
    tables_dirty_ = true;
    return block;
}

void KvCache::drop_blocks(uint32_t layer, uint32_t h, size_t keep) {
    while (head(layer, h).blocks.size() > keep)
        arena_->release(layer, pop_block(layer, h));
}

// Where an error is under way, or nobody could be told of one: the books are always right
// afterwards, and memory that cannot go back now (a lost device) goes with the arenas.
void KvCache::abandon_blocks(uint32_t layer, uint32_t h, size_t keep) noexcept {
    while (head(layer, h).blocks.size() > keep)
        arena_->abandon(layer, pop_block(layer, h));
}

void KvCache::append(std::span<const int32_t> positions, int64_t n) {
    std::string why;
    if (!fits(n, &why)) throw_error(ErrorKind::resource, "{}", why);
    const KvShape &s = shape();
    if (positions.size() != static_cast<size_t>(n))
        throw_error(ErrorKind::internal, "{} positions for {} tokens", positions.size(), n);
    try {
        for (uint32_t l = 0; l < s.layers; ++l) {
            for (uint32_t h = 0; h < s.kv_heads; ++h)
                make_room(l, h, n);
        }
    } catch (...) { // the device is out of memory
        give_back_blocks();
        throw;
    }
    for (Head &own : heads_)
        own.positions.insert(own.positions.end(), positions.begin(), positions.end());
    try {
        queue_books();
    } catch (...) { // as if nothing had been asked for, on the device too where it still listens
        for (Head &own : heads_)
            own.positions.resize(own.positions.size() - static_cast<size_t>(n));
        give_back_blocks();
        try {
            queue_books();
        } catch (const Error &) {
        }
        throw;
    }
}

// Blocks that were taken for slots which did not come.
void KvCache::give_back_blocks() noexcept {
    for (uint32_t l = 0; l < shape().layers; ++l) {
        for (uint32_t h = 0; h < shape().kv_heads; ++h)
            abandon_blocks(l, h, static_cast<size_t>(blocks_for(length(l, h))));
    }
}

// Blocks for n more tokens; a last block that is shared and not full becomes the head's own first.
void KvCache::make_room(uint32_t l, uint32_t h, int64_t n) {
    Head &own = head(l, h);
    if (n > 0 && own.length() % shape().block_slots != 0 &&
        arena_->is_shared(l, own.blocks.back())) {
        const int32_t shared = own.blocks.back(), fresh = arena_->take(l);
        arena_->copy_block(l, shared, fresh);
        set_block(l, h, own.blocks.size() - 1, fresh);
        arena_->release(l, shared);
    }
    const auto wanted = static_cast<size_t>(blocks_for(own.length() + n));
    while (own.blocks.size() < wanted)
        set_block(l, h, own.blocks.size(), arena_->take(l));
}

void KvCache::truncate(int64_t n) {
    for (uint32_t l = 0; l < shape().layers; ++l) {
        for (uint32_t h = 0; h < shape().kv_heads; ++h) {
            Head &own = head(l, h);
            own.positions.resize(static_cast<size_t>(std::max<int64_t>(0, own.length() - n)));
            drop_blocks(l, h, static_cast<size_t>(blocks_for(own.length())));
        }
    }
    queue_books();
}

void KvCache::clear() {
    truncate(max_length());
}

// One write for the lengths of all layers, one for all tables if a block came or went.
void KvCache::queue_books() {
    for (size_t i = 0; i < heads_.size(); ++i)
        host_lengths_[i] = static_cast<int32_t>(heads_[i].length());
    lengths_.write(host_lengths_.data());
    if (tables_dirty_) tables_.write(host_tables_.data());
    tables_dirty_ = false;
    for (uint32_t l = 0; l < shape().layers; ++l)
        refresh_view(l);
}

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
    return true; // rising and as many as there are: all of them
}

// A shared block is not written into. A head that keeps everything is not written at all.
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
                *why = fmt::format("evicting from a cache that shares blocks with a fork copies {} "
                                   "blocks of layer {} "
                                   "first, and {} are free; {} sequence(s) were planned for",
                                   of_layer, l, arena_->free_blocks(l), shape().sequences);
            }
            return false;
        }
        wanted += of_layer;
    }
    if (arena_->can_take(wanted)) return true;
    if (why != nullptr) {
        *why = fmt::format(
            "evicting from a cache that shares blocks with a fork copies {:.6g} MiB first, which "
            "would pass kv.max_mib = {:.6g}; raise "
            "that key, keep keys and values in a smaller kv.dtype, or let a policy evict",
            static_cast<double>(wanted * shape().block_bytes()) / 1048576,
            static_cast<double>(shape().max_bytes) / 1048576);
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

// Queues the move of the kept slots into the blocks of `table`.
void KvCache::queue_gather(uint32_t layer, const KeepLists &keep, PlannedOp &gather,
                           std::span<const Tensor> sides, std::span<const int32_t> table,
                           bool moved) {
    const KvShape &s = shape();
    refresh_view(layer); // taking blocks may have exchanged the arenas
    keel_kv_view to = layers_[layer].view;
    if (moved) {
        gather_table_.write(table.data());
        to.block_table = gather_table_.c();
    }
    size_t longest = 1;
    for (const auto &list : keep)
        longest = std::max(longest, list.size());
    index_scratch_.assign(size_t{s.kv_heads} * longest, 0);
    std::vector<int32_t> counts(s.kv_heads);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        std::copy(keep[h].begin(), keep[h].end(),
                  index_scratch_.begin() + static_cast<std::ptrdiff_t>(h * longest));
        // A head that keeps everything has nothing to move.
        const bool untouched = static_cast<int64_t>(keep[h].size()) == length(layer, h);
        counts[h] = untouched ? 0 : static_cast<int32_t>(keep[h].size());
    }
    const Tensor index(gather_index_.buffer(), 0, KEEL_DTYPE_I32,
                       {s.kv_heads, static_cast<int64_t>(longest)});
    index.write(index_scratch_.data());
    gather_count_.write(counts.data());
    std::vector<const keel_tensor *> side_pointers;
    for (const Tensor &side : sides)
        side_pointers.push_back(side.c());
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
        throw_error(ErrorKind::internal, "{} keep-lists for {} heads", keep.size(), s.kv_heads);
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        int64_t last = -1;
        for (const int32_t slot : keep[h]) {
            if (slot <= last || slot >= length(layer, h)) {
                throw_error(ErrorKind::internal, "layer {} head {}: slot {} in a keep-list of {}",
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
    } catch (...) { // out of memory, say: blocks taken for nothing go back
        for (const int32_t block : taken)
            arena_->abandon(layer, block);
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

void KvCache::set_positions(uint32_t layer, uint32_t h, int64_t begin,
                            std::span<const int32_t> positions) {
    std::copy(positions.begin(), positions.end(), head(layer, h).positions.begin() + begin);
}

std::unique_ptr<KvCache> KvCache::fork() const {
    std::unique_ptr<KvCache> copy(new KvCache(arena_));
    copy->host_tables_ = host_tables_;
    const int64_t slots = shape().blocks_per_head() * shape().block_slots;
    std::vector<int32_t> positions(heads_.size() * static_cast<size_t>(slots), 0);
    for (size_t i = 0; i < heads_.size(); ++i) {
        copy->heads_[i].blocks.assign(heads_[i].blocks.begin(), heads_[i].blocks.end());
        copy->heads_[i].positions.assign(heads_[i].positions.begin(), heads_[i].positions.end());
        const auto layer = static_cast<uint32_t>(i / shape().kv_heads);
        for (const int32_t block : heads_[i].blocks)
            arena_->retain(layer, block);
        std::copy(heads_[i].positions.begin(), heads_[i].positions.end(),
                  positions.begin() + static_cast<std::ptrdiff_t>(i * slots));
    }
    copy->positions_.write(positions.data());
    copy->queue_books();
    return copy;
}

} // namespace keel
