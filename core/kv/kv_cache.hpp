#pragma once

#include "device/executor.hpp"

#include <keel/kv.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// What a cache holds. The same for all layers.
struct KvShape {
    uint32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0; // heads: query heads, for scores
    keel_dtype key_dtype = KEEL_DTYPE_F16, value_dtype = KEEL_DTYPE_F16;
    uint32_t block_slots = 64; // a power of two
    int64_t max_slots = 0;     // of a head; rounded up to whole blocks for the tables
    uint64_t max_bytes = 0;    // cap on blocks in use, K and V, all layers; 0: none. Never passed

    int64_t blocks_per_head() const { return (max_slots + block_slots - 1) / block_slots; }
    uint64_t block_bytes() const; // K and V of one block
};

// A view without memory, for planning ops before a cache exists: the largest arenas, tables and lengths.
class KvTemplate {
  public:
    explicit KvTemplate(const KvShape &shape);
    const keel_kv_view *view() const { return &view_; }

  private:
    Tensor k_, v_, table_, lengths_, positions_;
    keel_kv_view view_;
};

// Which slots of each KV head of a layer stay: for each head a strictly rising list.
using KeepLists = std::vector<std::vector<int32_t>>;

// The KV cache of one sequence on one device: per layer an arena of fixed blocks for K and one for V, a block table, lengths and
// positions. Blocks belong to heads, so heads of different length cost what they hold; a free block's memory goes back to the
// system. Keeps books of lengths and positions on the host, so that no read-back is ever needed. Not thread-safe.
//
// A fork shares its parent's blocks until one of the two writes to one.
class KvCache {
  public:
    KvCache(Executor &executor, const KvShape &shape, keel_buffer_kind placement);
    ~KvCache();
    KvCache(const KvCache &) = delete;
    KvCache &operator=(const KvCache &) = delete;

    const KvShape &shape() const;
    // Layer's view for ops; the pointer is stable, its content changes with append, compact and truncate.
    const keel_kv_view *view(uint32_t layer) const;

    int64_t length(uint32_t layer, uint32_t head) const;
    int64_t max_length() const;  // over all layers and heads
    int64_t tokens_seen() const; // tokens appended so far, evicted ones included, truncated ones not
    std::span<const int32_t> positions(uint32_t layer,
                                       uint32_t head) const; // of the slots in use, in slot order

    // Would n more tokens fit under max_slots and max_bytes? With `why` the limit that would be passed, in words with its config key.
    bool fits(int64_t n, std::string *why = nullptr) const;
    // Makes room for n tokens at the ends of all heads: takes blocks (copying shared last blocks), raises the lengths, queues the new
    // lengths and tables. The ops of the step then write K, V and positions. `positions` are the tokens' RoPE positions, [n], or
    // [n, kv_heads] when heads differ. Throws Error(resource) if they do not fit, and then nothing changed.
    void append(std::span<const int32_t> positions);
    // Takes the last n tokens back (they were appended after the last compaction). Blocks that become empty are given back.
    void truncate(int64_t n);
    // Compacts a layer to the slots listed; `sides` are f32 or i32 [kv_heads, slots] arrays that move with them. Queues the moves and
    // gives back the blocks that become free. Returns the bytes freed.
    uint64_t compact(uint32_t layer, const KeepLists &keep, std::span<const Tensor> sides = {});
    // Rotates the keys of slots by `delta[i]` positions (0: leave) for slots begin..begin+n-1 of a head... see the .cpp's contract.
    // Layer's keys get new positions; inv_freq are the model's rotation frequencies [rot/2].
    void shift_positions(uint32_t layer, std::span<const std::vector<int32_t>> new_positions,
                         std::span<const double> inv_freq, keel_rope_mode mode);
    void clear();

    std::unique_ptr<KvCache> fork();

    uint64_t bytes_in_use() const;   // of blocks held by this cache, shared ones counted too
    uint64_t bytes_resident() const; // memory that the arenas hold now, from the system's point of view
    uint64_t peak_bytes() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace keel
