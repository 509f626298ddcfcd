#include "kv/store/arena.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>

namespace keel {
namespace {

Tensor blocks_of(BufferPtr buffer, keel_dtype dtype, size_t blocks, const KvShape &shape) {
    return Tensor(std::move(buffer), 0, dtype,
                  {static_cast<int64_t>(blocks), shape.block_slots, shape.head_dim});
}

} // namespace

KvArena::KvArena(Executor &executor, const KvShape &shape, keel_buffer_kind placement,
                 uint32_t seats)
    : executor_(executor), shape_(shape), placement_(placement) {
    shape_.check();
    const auto capacity = static_cast<size_t>(shape_.capacity_blocks());
    layers_.resize(shape_.layers);
    for (Layer &layer : layers_) {
        BufferPtr k = executor_.device().reserve(capacity * shape_.key_block_bytes());
        BufferPtr v =
            k ? executor_.device().reserve(capacity * shape_.value_block_bytes()) : nullptr;
        reserved_ = v != nullptr;
        if (!reserved_) break;
        layer.k = blocks_of(std::move(k), shape_.key_dtype, capacity, shape_);
        layer.v = blocks_of(std::move(v), shape_.value_dtype, capacity, shape_);
        layer.owners.resize(capacity);
    }
    if (!reserved_) {
        for (Layer &layer : layers_)
            resize(layer, std::min<size_t>(capacity, size_t{2} * shape_.kv_heads));
    }
    if (seats == 0) return;
    const int64_t rows = int64_t{seats} * shape_.layers * shape_.kv_heads,
                  blocks = shape_.blocks_per_head();
    seat_taken_.resize(seats);
    seat_tables_ = Tensor::allocate(executor_.device(), KEEL_DTYPE_I32, {rows, blocks}, placement_);
    seat_lengths_ = Tensor::allocate(executor_.device(), KEEL_DTYPE_I32, {rows}, placement_);
    seat_positions_ = Tensor::allocate(executor_.device(), KEEL_DTYPE_I32,
                                       {rows, blocks * shape_.block_slots}, placement_);
}

int32_t KvArena::take_seat() {
    const auto free = std::find(seat_taken_.begin(), seat_taken_.end(), false);
    if (free == seat_taken_.end()) return -1;
    *free = true;
    return static_cast<int32_t>(free - seat_taken_.begin());
}

bool KvArena::can_take(uint64_t blocks) const {
    return shape_.max_bytes == 0 ||
           (blocks_in_use_ + blocks) * shape_.block_bytes() + extra_bytes_ + aside_bytes_ <=
               shape_.max_bytes;
}

void KvArena::count_extra(uint64_t now, uint64_t before) noexcept {
    extra_bytes_ = extra_bytes_ - before + now;
    peak_bytes_ = std::max(peak_bytes_, bytes_in_use());
}

int32_t KvArena::take(uint32_t index) {
    Layer &layer = layers_[index];
    if (!can_take(1)) {
        throw_error(ErrorKind::resource,
                    "the KV cache holds {} bytes, and the limit is {} bytes; raise kv.max_mib, or "
                    "set a policy with a budget",
                    bytes_in_use(), shape_.max_bytes);
    }
    if (layer.in_use == layer.owners.size()) {
        const auto capacity = static_cast<size_t>(shape_.capacity_blocks());
        if (layer.owners.size() >= capacity) {
            throw_error(ErrorKind::resource,
                        "all {} blocks of the KV cache are in use; the cache was planned for {} "
                        "sequence(s)",
                        capacity, shape_.sequences);
        }
        size_t more = std::max<size_t>(layer.owners.size() / 2, shape_.kv_heads);
        // Limits the number of allocated blocks so that their bytes stay within max_bytes.
        // max_bytes counts blocks in use. While the arena of a layer grows, its old and its new
        // memory both exist until the copy is done. Only one arena grows at a time. max_bytes does
        // not count the old memory.
        if (shape_.max_bytes != 0) {
            const uint64_t left = shape_.max_bytes / shape_.block_bytes() - blocks_in_use_;
            more = static_cast<size_t>(std::clamp<uint64_t>(left, 1, more));
        }
        resize(layer, std::min(capacity, layer.owners.size() + more));
    }
    while (layer.owners[layer.first_free] != 0) ++layer.first_free;
    const size_t block = layer.first_free;
    if (reserved_) {
        layer.k.buffer()->commit(block * shape_.key_block_bytes(), shape_.key_block_bytes(), true);
        layer.v.buffer()->commit(block * shape_.value_block_bytes(), shape_.value_block_bytes(),
                                 true);
    }
    layer.owners[block] = 1;
    ++layer.first_free; // must come after commit(): if commit() fails, the block stays free
    ++layer.in_use;
    ++blocks_in_use_;
    peak_bytes_ = std::max(peak_bytes_, bytes_in_use());
    return static_cast<int32_t>(block);
}

// Removes one owner of a block. Returns true if it was the last owner.
bool KvArena::let_go(Layer &layer, size_t block) noexcept {
    if (--layer.owners[block] != 0) return false;
    layer.first_free = std::min(layer.first_free, block);
    --layer.in_use;
    --blocks_in_use_;
    return true;
}

void KvArena::abandon(uint32_t index, int32_t id) noexcept {
    Layer &layer = layers_[index];
    const auto block = static_cast<size_t>(id);
    if (!let_go(layer, block) || !reserved_) return;
    try {
        decommit(layer, *layer.k.buffer(), block, shape_.key_block_bytes());
        decommit(layer, *layer.v.buffer(), block, shape_.value_block_bytes());
    } catch (...) {
        // If the device is lost or reports an error, the block keeps its memory. The memory is
        // freed with the arena, or the block's next owner uses it.
    }
}

void KvArena::release(uint32_t index, int32_t id) {
    Layer &layer = layers_[index];
    const auto block = static_cast<size_t>(id);
    if (!let_go(layer, block)) return;
    if (reserved_) {
        decommit(layer, *layer.k.buffer(), block, shape_.key_block_bytes());
        decommit(layer, *layer.v.buffer(), block, shape_.value_block_bytes());
        return;
    }
    // Blocks are taken from the front, so free blocks collect at the end. If more than half of the
    // arena is free at the end, this part is freed.
    size_t used = layer.owners.size();
    while (used > 0 && layer.owners[used - 1] == 0) --used;
    const size_t wanted = std::max<size_t>(used, shape_.kv_heads);
    if (wanted <= layer.owners.size() / 2) resize(layer, wanted);
}

// Decommits a block. Only whole pages can be returned to the system, and a block can be smaller
// than a page. So free neighbours within the largest page size are included.
void KvArena::decommit(Layer &layer, Buffer &buffer, size_t block, uint64_t block_bytes) {
    constexpr uint64_t largest_page = 65536;
    const size_t reach = static_cast<size_t>(largest_page / block_bytes) + 1;
    size_t first = block, end = block + 1;
    while (first > 0 && block - first < reach && layer.owners[first - 1] == 0) --first;
    while (end < layer.owners.size() && end - block <= reach && layer.owners[end] == 0) ++end;
    buffer.commit(first * block_bytes, (end - first) * block_bytes, false);
}

// Changes the number of blocks of an arena. The blocks keep their ids and content.
void KvArena::resize(Layer &layer, size_t blocks) {
    Device &device = executor_.device();
    const size_t kept = std::min(blocks, layer.owners.size());
    Tensor k = blocks_of(device.allocate(blocks * shape_.key_block_bytes(), placement_),
                         shape_.key_dtype, blocks, shape_);
    Tensor v = blocks_of(device.allocate(blocks * shape_.value_block_bytes(), placement_),
                         shape_.value_dtype, blocks, shape_);
    if (kept > 0) {
        queue_copy(layer.k.rows(0, static_cast<int64_t>(kept)),
                   k.rows(0, static_cast<int64_t>(kept)));
        queue_copy(layer.v.rows(0, static_cast<int64_t>(kept)),
                   v.rows(0, static_cast<int64_t>(kept)));
    }
    layer.k = std::move(k);
    layer.v = std::move(v);
    layer.owners.resize(blocks);
    ++layer.generation;
    device.trim(); // frees the old memory, which max_bytes does not count
}

void KvArena::queue_copy(const Tensor &from, const Tensor &to) {
    keel_move_args move = {KEEL_HEADER(keel_move_args)};
    OpHandle &op = from.dtype() == shape_.key_dtype ? copy_k_ : copy_v_;
    if (!op) {
        const Tensor whole = Tensor::shape(
            from.dtype(), {shape_.capacity_blocks(), shape_.block_slots, shape_.head_dim});
        move.x = move.out = whole.c();
        op = executor_.plan(KEEL_OP_COPY, move, {.role = Role::kv_block_copy});
    }
    move.x = from.c();
    move.out = to.c();
    executor_.run(*op, move);
}

void KvArena::copy_block(uint32_t index, int32_t from, int32_t to) {
    const Layer &layer = layers_[index];
    queue_copy(layer.k.rows(from, 1), layer.k.rows(to, 1));
    queue_copy(layer.v.rows(from, 1), layer.v.rows(to, 1));
}

uint64_t KvArena::bytes_resident() const {
    if (reserved_) return bytes_in_use();
    uint64_t bytes = extra_bytes_;
    for (const Layer &layer : layers_) bytes += layer.owners.size() * shape_.block_bytes();
    return bytes;
}

} // namespace keel
