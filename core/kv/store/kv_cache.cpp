#include "kv/store/kv_cache.hpp"

#include "base/display.hpp"
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
    for (Head &h : heads_) { // reserves memory, so that a growing cache allocates none
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

// Takes a seat in the arena's tensors for block tables, lengths and positions, if a seat is free.
// Otherwise allocates its own tensors.
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
        for (uint32_t h = 0; h < shape().kv_heads; ++h) abandon_blocks(l, h, 0);
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
    for (uint32_t h = 0; h < shape().kv_heads; ++h) longest = std::max(longest, length(layer, h));
    return longest;
}

int64_t KvCache::max_length() const {
    int64_t longest = 0;
    for (const Head &h : heads_) longest = std::max(longest, h.length());
    return longest;
}

int64_t KvCache::total_length() const {
    int64_t total = 0;
    for (const Head &h : heads_) total += h.length();
    return total;
}

uint64_t KvCache::bytes_in_use() const {
    uint64_t blocks = 0;
    for (const Head &h : heads_) blocks += h.blocks.size();
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
                "the cache has {} tokens, so {} more would exceed model.context = {}; shorten the "
                "text, raise model.context, or choose a policy that evicts",
                longest, n, shape().max_slots);
        }
        return false;
    }
    if (!arena_->can_take(blocks_wanted(n))) {
        if (why != nullptr) {
            const auto mib = [](uint64_t bytes) {
                return static_cast<double>(bytes) / bytes_per_mib;
            };
            const uint64_t aside = arena_->bytes_set_aside();
            *why = fmt::format(
                "the KV cache holds {:.6g} MiB{}; {} more token(s) need {:.6g} MiB, but the limit "
                "is {}; raise kv.max_mib, use a smaller kv.dtype, or choose a policy that evicts",
                mib(arena_->bytes_in_use()),
                aside > 0 ? fmt::format(" and {:.3f} MiB are set aside for the policy's state "
                                        "(kv.count_policy_state)",
                                        mib(aside))
                          : "",
                n, mib(blocks_wanted(n) * shape().block_bytes()), shape().cap_text());
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
    while (head(layer, h).blocks.size() > keep) arena_->release(layer, pop_block(layer, h));
}

// Frees blocks while an error is handled, or in a destructor, so this function must not throw.
// After the call the tables are always correct. If the device is lost, the memory cannot be freed
// now. Then the memory is freed with the arenas.
void KvCache::abandon_blocks(uint32_t layer, uint32_t h, size_t keep) noexcept {
    while (head(layer, h).blocks.size() > keep) arena_->abandon(layer, pop_block(layer, h));
}

void KvCache::append(std::span<const int32_t> positions, int64_t n) {
    std::string why;
    if (!fits(n, &why)) throw_error(ErrorKind::resource, "{}", why);
    const KvShape &s = shape();
    if (positions.size() != static_cast<size_t>(n))
        throw_error(ErrorKind::internal,
                    "expected one position for each token, found {} positions for {} tokens",
                    positions.size(), n);
    try {
        for (uint32_t l = 0; l < s.layers; ++l) {
            for (uint32_t h = 0; h < s.kv_heads; ++h) make_room(l, h, n);
        }
    } catch (...) { // the device is out of memory
        give_back_blocks();
        throw;
    }
    for (Head &own : heads_)
        own.positions.insert(own.positions.end(), positions.begin(), positions.end());
    try {
        queue_books();
    } catch (...) { // undoes the append on the host, and also on the device if it still works
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

// Frees blocks that were taken for slots which were not appended.
void KvCache::give_back_blocks() noexcept {
    for (uint32_t l = 0; l < shape().layers; ++l) {
        for (uint32_t h = 0; h < shape().kv_heads; ++h)
            abandon_blocks(l, h, static_cast<size_t>(blocks_for(length(l, h))));
    }
}

// Takes blocks for n more tokens. If a head's last block is shared and not full, the head first
// gets its own copy.
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
    while (own.blocks.size() < wanted) set_block(l, h, own.blocks.size(), arena_->take(l));
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

void KvCache::clear() { truncate(max_length()); }

// Queues one write for the lengths of all layers. If a block was added or removed, queues one write
// for all tables.
void KvCache::queue_books() {
    for (size_t i = 0; i < heads_.size(); ++i)
        host_lengths_[i] = static_cast<int32_t>(heads_[i].length());
    lengths_.write(host_lengths_.data());
    if (tables_dirty_) tables_.write(host_tables_.data());
    tables_dirty_ = false;
    for (uint32_t l = 0; l < shape().layers; ++l) refresh_view(l);
}

void KvCache::set_positions(uint32_t layer, uint32_t h, int64_t begin,
                            std::span<const int32_t> positions) {
    std::copy(positions.begin(), positions.end(), head(layer, h).positions.begin() + begin);
}

std::unique_ptr<KvCache> KvCache::fork() const {
    std::unique_ptr<KvCache> copy(new KvCache(arena_));
    copy->host_tables_ = host_tables_;
    for (size_t i = 0; i < heads_.size(); ++i) {
        copy->heads_[i].blocks.assign(heads_[i].blocks.begin(), heads_[i].blocks.end());
        copy->heads_[i].positions.assign(heads_[i].positions.begin(), heads_[i].positions.end());
        const auto layer = static_cast<uint32_t>(i / shape().kv_heads);
        for (const int32_t block : heads_[i].blocks) arena_->retain(layer, block);
    }
    copy->write_positions();
    copy->queue_books();
    return copy;
}

void KvCache::write_positions() {
    const auto slots = static_cast<size_t>(shape().blocks_per_head() * shape().block_slots);
    index_scratch_.assign(heads_.size() * slots, 0);
    for (size_t i = 0; i < heads_.size(); ++i)
        std::copy(heads_[i].positions.begin(), heads_[i].positions.end(),
                  index_scratch_.begin() + static_cast<std::ptrdiff_t>(i * slots));
    positions_.write(index_scratch_.data());
}

} // namespace keel
