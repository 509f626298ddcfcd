#pragma once

#include "kv/store/kv_shape.hpp"

#include <memory>
#include <vector>

namespace keel {

// The blocks of all layers of a cache and its forks. Each layer has a K and a V arena of [blocks,
// block_slots, head_dim], and the number of owners of each block. Each layer numbers its blocks
// from 0; the K and V parts of a block have the same number. If the backend can reserve address
// space, a free block has no memory. Otherwise an arena grows by copying it to new memory, and it
// shrinks if blocks at its end are free.
class KvArena {
  public:
    // `seats`: see seats().
    KvArena(Executor &executor, const KvShape &shape, keel_buffer_kind placement,
            uint32_t seats = 0);

    const KvShape &shape() const { return shape_; }
    Executor &executor() const { return executor_; }
    keel_buffer_kind placement() const { return placement_; }
    const Tensor &keys(uint32_t layer) const { return layers_[layer].k; }
    const Tensor &values(uint32_t layer) const { return layers_[layer].v; }
    // A number that rises each time the tensors of a layer are replaced. Then all earlier views of
    // the layer are invalid.
    uint64_t generation(uint32_t layer) const { return layers_[layer].generation; }

    // Returns true if `blocks` more blocks, in all layers together, can be taken without exceeding
    // max_bytes.
    bool can_take(uint64_t blocks) const;
    // Returns the number of blocks that a layer can still take.
    uint64_t free_blocks(uint32_t layer) const {
        return static_cast<uint64_t>(shape_.capacity_blocks()) - layers_[layer].in_use;
    }
    // Takes the free block with the lowest number. The block then has one owner. Throws
    // Error(resource) if no block is free.
    int32_t take(uint32_t layer);
    // Adds one owner to the block.
    void retain(uint32_t layer, int32_t block) {
        ++layers_[layer].owners[static_cast<size_t>(block)];
    }
    // Removes one owner of the block. If the block has no owner left, its memory is freed.
    void release(uint32_t layer, int32_t block);
    // Like release(), but never replaces an arena and never throws.
    void abandon(uint32_t layer, int32_t block) noexcept;
    bool is_shared(uint32_t layer, int32_t block) const {
        return layers_[layer].owners[static_cast<size_t>(block)] > 1;
    }
    void copy_block(uint32_t layer, int32_t from, int32_t to);

    // In steps of several sequences, the block tables of all caches are in one tensor. The lengths
    // of all caches are in another tensor, and their positions in a third. A seat is a cache's part
    // of these tensors: layers * kv_heads rows of each. Block tables: i32 [seats * layers *
    // kv_heads, blocks]. Lengths: i32 [seats * layers * kv_heads]. Positions: i32 [seats * layers *
    // kv_heads, slots].
    uint32_t seats() const { return static_cast<uint32_t>(seat_taken_.size()); }
    int32_t take_seat(); // returns -1 if no seat is free
    void leave_seat(int32_t seat) noexcept { seat_taken_[static_cast<size_t>(seat)] = false; }
    const Tensor &seat_tables() const { return seat_tables_; }
    const Tensor &seat_lengths() const { return seat_lengths_; }
    const Tensor &seat_positions() const { return seat_positions_; }

    // Bytes of blocks in use, plus the bytes that count_extra() added. Each shared block counts
    // once.
    uint64_t bytes_in_use() const { return blocks_in_use_ * shape_.block_bytes() + extra_bytes_; }
    // Records that a sequence's additional memory (without its blocks) has changed from `before` to
    // `now` bytes. This memory counts as cache memory.
    void count_extra(uint64_t now, uint64_t before) noexcept;
    // Changes the reserve of a sequence from `before` to `now` bytes. Blocks may not take reserved
    // bytes. The reserve is for memory that does not count as cache memory.
    void set_aside(uint64_t now, uint64_t before) noexcept { aside_bytes_ += now - before; }
    uint64_t bytes_set_aside() const { return aside_bytes_; }
    uint64_t bytes_resident() const; // bytes of memory that the arenas have
    uint64_t peak_bytes() const { return peak_bytes_; }

  private:
    struct Layer {
        Tensor k, v;
        std::vector<uint32_t> owners; // [capacity]; 0: the block is free
        size_t first_free = 0;        // all blocks below this number are in use
        size_t in_use = 0;
        uint64_t generation = 0;
    };
    bool let_go(Layer &layer, size_t block) noexcept;
    void resize(Layer &layer, size_t blocks);
    void decommit(Layer &layer, Buffer &buffer, size_t block, uint64_t block_bytes);
    void queue_copy(const Tensor &from, const Tensor &to);

    Executor &executor_;
    KvShape shape_;
    keel_buffer_kind placement_;
    bool reserved_ = false;
    std::vector<Layer> layers_;
    uint64_t blocks_in_use_ = 0, extra_bytes_ = 0, peak_bytes_ = 0, aside_bytes_ = 0;
    OpHandle copy_k_, copy_v_; // planned when first needed
    std::vector<bool> seat_taken_;
    Tensor seat_tables_, seat_lengths_, seat_positions_;
};

} // namespace keel
