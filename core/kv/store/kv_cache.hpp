#pragma once

#include "kv/store/arena.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

// Which slots of each KV head of a layer stay: for each head a strictly rising list.
using KeepLists = std::vector<std::vector<int32_t>>;

// The KV cache of one sequence on one device: for each layer and KV head a list of blocks, a
// length, and the position of the key in each slot. Blocks belong to heads, so heads of different
// length cost what they hold. Keeps books of lengths and positions on the host, so that nothing
// ever has to be read back. Not thread-safe.
//
// A fork shares its parent's blocks until one of the two writes to one (an append copies the last
// block if it is not full, a compaction goes to blocks of its own). Parent and fork may go in any
// order.
//
// It has many functions because appends, forks, compaction, saving and moving all change the same
// books, and none of them may see the books half changed.
class KvCache {
  public:
    KvCache(Executor &executor, const KvShape &shape, keel_buffer_kind placement);
    // An empty one beside others in their arena. KvShape::sequences has to allow it.
    static std::unique_ptr<KvCache> beside(std::shared_ptr<KvArena> arena);
    ~KvCache();
    KvCache(const KvCache &) = delete;
    KvCache &operator=(const KvCache &) = delete;

    const KvShape &shape() const { return arena_->shape(); }
    // A layer's view for ops; the pointer is stable, what it points to follows append, compact and
    // truncate.
    const keel_kv_view *view(uint32_t layer) const { return &layers_[layer].view; }
    std::span<const keel_kv_view *const> views() const { return views_; }

    // Slots in use of a head. A row is a head of a layer: layer * kv_heads + head.
    int64_t length(uint32_t layer, uint32_t head) const {
        return heads_[layer * shape().kv_heads + head].length();
    }
    int64_t row_length(size_t row) const { return heads_[row].length(); }
    size_t rows() const { return heads_.size(); }
    int64_t max_length(uint32_t layer) const;
    int64_t max_length() const;
    int64_t total_length() const; // of all heads of all layers together
    // Positions of the keys in use, in slot order.
    std::span<const int32_t> positions(uint32_t layer, uint32_t head) const {
        return heads_[layer * shape().kv_heads + head].positions;
    }
    std::span<const int32_t> row_positions(size_t row) const { return heads_[row].positions; }

    // Would n more tokens fit under max_slots and max_bytes? If not and `why` is given: which
    // limit, in words, with its config key.
    bool fits(int64_t n, std::string *why = nullptr) const;
    // The same without taking a block for it.
    bool has_slots(int64_t n) const {
        return max_length() + n <= shape().max_slots && blocks_wanted(n) == 0;
    }
    // Makes room for n tokens at the ends of all heads: takes blocks (copying a shared last block
    // first), raises the lengths, queues the new lengths and tables. The step's ops then write K, V
    // and positions. `positions` are the tokens' RoPE positions, [n]. Throws Error(resource) if
    // they do not fit, and then nothing has changed.
    void append(std::span<const int32_t> positions, int64_t n);
    // Takes the last n tokens of every head back; blocks that become empty are given back.
    void truncate(int64_t n);
    // With KvShape::window: frees the first blocks if queries from position `next` on see none of
    // their tokens. The last such block stays, so that a few tokens can be taken back. Copies no
    // rows. All heads must hold the same positions.
    void hold_window(int64_t next);
    // Position of the first key in the cache; 0 if the cache is empty.
    int64_t first_position() const {
        return heads_.front().positions.empty() ? 0 : heads_.front().positions.front();
    }
    // Plans the op of compact(). Call it before the first compact() and before buffers are made,
    // because fallbacks decide where buffers are.
    static OpHandle plan_gather(Executor &executor, const KvShape &shape, uint32_t sides);
    // Compacts a layer to the listed slots with an op of plan_gather; `sides` are i32 or f32
    // [kv_heads, slots] tensors that move along. Queues the moves and gives back the blocks that
    // become free. The bytes freed. A head whose list is all its slots is untouched. After the last
    // layer's compaction publish() has to follow, before anything else reads the cache.
    uint64_t compact(uint32_t layer, const KeepLists &keep, PlannedOp &gather,
                     std::span<const Tensor> sides = {});
    // Would compact() of all layers find the blocks that copying shared ones takes? If not and
    // `why` is given: in words.
    bool can_compact(std::span<const KeepLists> keep, std::string *why = nullptr) const;
    // Queues lengths and tables as compact() left them: one write each for all layers.
    void publish() { queue_books(); }
    // Brings the views up to date where another fork exchanged the arenas.
    void refresh() {
        for (uint32_t l = 0; l < shape().layers; ++l) refresh_view(l);
    }
    // Notes new positions of slots begin.. of a head, after an op (kv_rerotate) wrote them on the
    // device.
    void set_positions(uint32_t layer, uint32_t head, int64_t begin,
                       std::span<const int32_t> positions);
    void clear();

    // Writes lengths, positions and rows, in the types of the cache; reads them from the device.
    void save(StateWriter &out) const;
    // What save() wrote, of a cache of the same layers, heads and types, in the place of what is
    // here. `seen`: tokens since the start, positions are below. Throws Error(input) for what
    // cannot be (nothing is believed), and for what does not fit here; the cache is empty then.
    void load(StateReader &in, int64_t seen);

    // Takes over what a cache of the same layers and heads on another device holds, in two parts.
    // First blocks, lengths and positions, in the place of what is here; throws Error(resource)
    // where there is no memory, and this one is empty then. Afterwards the rows, layer by layer, in
    // this one's types: the bytes that were written.
    void reserve_like(const KvCache &from);
    uint64_t take_rows(const KvCache &from, uint32_t layer);
    // Gives a layer's blocks back, of a cache that is of no use any more.
    void drop_rows(uint32_t layer) noexcept;

    // A cache with the same content that shares the blocks. KvShape::sequences has to allow it.
    std::unique_ptr<KvCache> fork() const;

    // Where in the arena its books lie (KvArena::seats); -1: in tensors of its own.
    int32_t seat() const { return seat_; }
    KvArena &arena() { return *arena_; }
    const KvArena &arena() const { return *arena_; }
    uint64_t bytes_in_use() const; // of this cache's blocks, shared ones included

  private:
    struct Head {
        std::vector<int32_t> blocks;
        std::vector<int32_t> positions; // one per slot in use
        int64_t length() const { return static_cast<int64_t>(positions.size()); }
    };
    struct Layer {
        Tensor k, v, table, lengths, positions;
        uint64_t generation = 0;
        keel_kv_view view = {KEEL_HEADER(keel_kv_view)};
    };

    struct SavedHead { // bytes of the reader's
        std::vector<int32_t> positions;
        std::span<const std::byte> keys, values;
    };

    explicit KvCache(std::shared_ptr<KvArena> arena);
    void take_books(Device &device, int64_t rows, int64_t blocks, int64_t slots);
    SavedHead read_head(StateReader &in, int64_t seen) const;
    void fill_head(uint32_t layer, uint32_t head, const SavedHead &saved);
    Head &head(uint32_t layer, uint32_t h) { return heads_[layer * shape().kv_heads + h]; }
    uint64_t blocks_wanted(int64_t n) const; // for n more tokens, copies of shared blocks included
    int64_t blocks_for(int64_t slots) const {
        return (slots + shape().block_slots - 1) / shape().block_slots;
    }
    void make_room(uint32_t layer, uint32_t head, int64_t n);
    void set_block(uint32_t layer, uint32_t head, size_t i, int32_t block);
    int32_t pop_block(uint32_t layer, uint32_t head) noexcept; // the last one's id, still owned
    void drop_blocks(uint32_t layer, uint32_t head, size_t keep);
    void drop_first_blocks(uint32_t layer, uint32_t head, size_t n);
    void write_positions(); // all of them, to the device
    void give_back_blocks() noexcept;
    void abandon_blocks(uint32_t layer, uint32_t head,
                        size_t keep) noexcept; // drop_blocks without shrinking
    void refresh_view(uint32_t layer);
    void queue_books(); // lengths, and tables where they changed
    bool needs_fresh(uint32_t layer, uint32_t head, size_t kept,
                     size_t block) const; // to compact into block i
    bool is_identity(uint32_t layer, const KeepLists &keep) const;
    // The table of a compaction whose target blocks are this cache's own: fresh ones in place of
    // shared ones. `taken`: the fresh ones, which are nobody's yet; those taken so far if this
    // throws.
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
