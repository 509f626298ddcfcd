#pragma once

#include "kv/store/arena.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

// The slots of a layer that stay: for each KV head a strictly rising list.
using KeepLists = std::vector<std::vector<int32_t>>;

// The KV cache of one sequence on one device: for each layer and KV head a list of blocks, a
// length, and the position of the key in each slot. Each block belongs to one head, so a short head
// takes less memory than a long one. The host has a copy of the block lists, lengths and positions.
// So they are never read back from the device. Not thread-safe.
//
// A fork shares the blocks of its parent. A cache that writes to a shared block first gets its own
// block: an append copies the last block if it is not full, and a compaction writes to new blocks.
// Parent and fork may be destroyed in any order.
//
// The class has many functions because appends, forks, compaction, saving and moving all change the
// block lists, lengths and positions. Each change must be complete before the next change begins.
class KvCache {
  public:
    KvCache(Executor &executor, const KvShape &shape, keel_buffer_kind placement);
    // Makes an empty cache that shares the arena of other caches. KvShape::sequences must allow one
    // more cache.
    static std::unique_ptr<KvCache> beside(std::shared_ptr<KvArena> arena);
    ~KvCache();
    KvCache(const KvCache &) = delete;
    KvCache &operator=(const KvCache &) = delete;

    const KvShape &shape() const { return arena_->shape(); }
    // Returns a layer's view for ops. The pointer stays the same. append(), compact() and
    // truncate() change the view to which it points.
    const keel_kv_view *view(uint32_t layer) const { return &layers_[layer].view; }
    std::span<const keel_kv_view *const> views() const { return views_; }

    // Number of slots of a head in use. A row is a head of a layer: layer * kv_heads + head.
    int64_t length(uint32_t layer, uint32_t head) const {
        return heads_[layer * shape().kv_heads + head].length();
    }
    int64_t row_length(size_t row) const { return heads_[row].length(); }
    size_t rows() const { return heads_.size(); }
    int64_t max_length(uint32_t layer) const;
    int64_t max_length() const;
    int64_t total_length() const; // the sum over all heads of all layers
    // Positions of the keys of a head, in slot order.
    std::span<const int32_t> positions(uint32_t layer, uint32_t head) const {
        return heads_[layer * shape().kv_heads + head].positions;
    }
    std::span<const int32_t> row_positions(size_t row) const { return heads_[row].positions; }

    // Returns true if n more tokens fit within max_slots and max_bytes. If not, `why` gets a text
    // with the exceeded limit and its config key.
    bool fits(int64_t n, std::string *why = nullptr) const;
    // Returns true if n more tokens fit into the blocks that the cache already has.
    bool has_slots(int64_t n) const {
        return max_length() + n <= shape().max_slots && blocks_wanted(n) == 0;
    }
    // Adds slots for n tokens at the end of each head. The function takes blocks, raises the
    // lengths, and queues writes of the new lengths and tables. If the last block is shared, the
    // function first copies this block. The step's ops then write keys, values and positions into
    // the slots. `positions`: the tokens' RoPE positions, [n]. If the tokens do not fit, throws
    // Error(resource) and changes nothing.
    void append(std::span<const int32_t> positions, int64_t n);
    // Removes the last n tokens from every head. Frees the blocks that become empty.
    void truncate(int64_t n);
    // For a cache with KvShape::window. A block is no longer needed if no query from position
    // `next` on attends to its tokens. Frees the first blocks that are no longer needed, except the
    // last such block, so that a few tokens can be removed. Copies no rows. All heads must hold the
    // same positions.
    void hold_window(int64_t next);
    // Returns the position of the first key in the cache, or 0 if the cache is empty.
    int64_t first_position() const {
        return heads_.front().positions.empty() ? 0 : heads_.front().positions.front();
    }
    // Plans the op of compact(). Call it before the first compact() and before buffers are made,
    // because the fallbacks of ops decide where buffers are placed.
    static OpHandle plan_gather(Executor &executor, const KvShape &shape, uint32_t sides);
    // Compacts a layer to the slots in `keep` with an op of plan_gather. `sides` are i32 or f32
    // [kv_heads, slots] tensors whose entries move with the slots. Queues the moves, frees the
    // blocks that become empty, and returns the bytes freed. A head does not change if its list has
    // all slots of the head. Call publish() after the last layer, before anything else reads the
    // cache.
    uint64_t compact(uint32_t layer, const KeepLists &keep, PlannedOp &gather,
                     std::span<const Tensor> sides = {});
    // Returns true if there are enough free blocks for compact(), which copies shared blocks of all
    // layers. If there are not enough, `why` gets a text with the reason.
    bool can_compact(std::span<const KeepLists> keep, std::string *why = nullptr) const;
    // Queues writes of the lengths and tables that compact() has changed: one write each for all
    // layers.
    void publish() { queue_books(); }
    // Updates the views of layers whose arena another fork has replaced.
    void refresh() {
        for (uint32_t l = 0; l < shape().layers; ++l) refresh_view(l);
    }
    // Records new positions of a head's slots, from slot `begin` on. The op kv_rerotate has written
    // the positions on the device.
    void set_positions(uint32_t layer, uint32_t head, int64_t begin,
                       std::span<const int32_t> positions);
    void clear();

    // Writes lengths, positions and rows, in the types of the cache. Reads the rows from the
    // device.
    void save(StateWriter &out) const;
    // Replaces the content by the output of save() of a cache with the same layers, heads and
    // types. `seen`: number of tokens since the start; all positions are below this number. Every
    // value is checked. Throws Error(input) for invalid values and for content that does not fit.
    // After this error the cache is empty.
    void load(StateReader &in, int64_t seen);

    // These functions copy a cache with the same layers and heads from another device.
    // reserve_like() replaces the content by blocks, lengths and positions like those of `from`. If
    // there is no memory, it throws Error(resource), and this cache is empty. take_rows() then
    // copies the rows of a layer, converts them to the types of this cache, and returns the bytes
    // written.
    void reserve_like(const KvCache &from);
    uint64_t take_rows(const KvCache &from, uint32_t layer);
    // Frees a layer's blocks. After this, call no other function than this one and the destructor.
    void drop_rows(uint32_t layer) noexcept;

    // Makes a cache with the same content that shares the blocks. KvShape::sequences must allow one
    // more cache.
    std::unique_ptr<KvCache> fork() const;

    // Number of the seat in the arena (KvArena::seats) whose rows hold this cache's block table,
    // lengths and positions. -1: the cache has no seat, so it has its own tensors for them.
    int32_t seat() const { return seat_; }
    KvArena &arena() { return *arena_; }
    const KvArena &arena() const { return *arena_; }
    uint64_t bytes_in_use() const; // bytes of this cache's blocks, including shared blocks

  private:
    struct Head {
        std::vector<int32_t> blocks;
        std::vector<int32_t> positions; // one position for each slot in use
        int64_t length() const { return static_cast<int64_t>(positions.size()); }
    };
    struct Layer {
        Tensor k, v, table, lengths, positions;
        uint64_t generation = 0;
        keel_kv_view view = {KEEL_HEADER(keel_kv_view)};
    };

    struct SavedHead { // the spans point into the reader's bytes
        std::vector<int32_t> positions;
        std::span<const std::byte> keys, values;
    };

    explicit KvCache(std::shared_ptr<KvArena> arena);
    void take_books(Device &device, int64_t rows, int64_t blocks, int64_t slots);
    SavedHead read_head(StateReader &in, int64_t seen) const;
    void fill_head(uint32_t layer, uint32_t head, const SavedHead &saved);
    Head &head(uint32_t layer, uint32_t h) { return heads_[layer * shape().kv_heads + h]; }
    // Returns the number of new blocks that n more tokens need, including copies of shared blocks.
    uint64_t blocks_wanted(int64_t n) const;
    int64_t blocks_for(int64_t slots) const {
        return (slots + shape().block_slots - 1) / shape().block_slots;
    }
    void make_room(uint32_t layer, uint32_t head, int64_t n);
    void set_block(uint32_t layer, uint32_t head, size_t i, int32_t block);
    // Removes the last block from the head's list and returns its id. The block keeps its owner.
    int32_t pop_block(uint32_t layer, uint32_t head) noexcept;
    void drop_blocks(uint32_t layer, uint32_t head, size_t keep);
    void drop_first_blocks(uint32_t layer, uint32_t head, size_t n);
    void write_positions(); // writes all positions to the device
    void give_back_blocks() noexcept;
    // Like drop_blocks(), but never shrinks an arena.
    void abandon_blocks(uint32_t layer, uint32_t head, size_t keep) noexcept;
    void refresh_view(uint32_t layer);
    void queue_books(); // queues writes of the lengths, and of the tables if they have changed
    // Returns true if a compaction of the head to `kept` slots needs a new block in place of its
    // block number `block`.
    bool needs_fresh(uint32_t layer, uint32_t head, size_t kept, size_t block) const;
    bool is_identity(uint32_t layer, const KeepLists &keep) const;
    // Makes the block table to which a compaction writes: new blocks replace shared blocks. `taken`
    // gets the new blocks, even if the function throws. After an error the caller must free the
    // blocks in `taken`, because no head has them yet.
    void unshare(uint32_t layer, const KeepLists &keep, std::vector<int32_t> &table,
                 std::vector<int32_t> &taken);
    void queue_gather(uint32_t layer, const KeepLists &keep, PlannedOp &gather,
                      std::span<const Tensor> sides, std::span<const int32_t> table, bool moved);

    std::shared_ptr<KvArena> arena_;
    int32_t seat_ = -1;
    std::vector<Head> heads_; // [layers, kv_heads]
    std::vector<Layer> layers_;
    std::vector<const keel_kv_view *> views_;
    // i32 [layers * kv_heads, blocks], [layers * kv_heads], [layers * kv_heads, slots]
    Tensor tables_, lengths_, positions_;
    std::vector<int32_t> host_tables_, host_lengths_;
    bool tables_dirty_ = true;
    Tensor gather_index_, gather_count_, gather_table_; // made at the first compaction
    std::vector<int32_t> index_scratch_;
};

} // namespace keel
