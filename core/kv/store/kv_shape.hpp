#pragma once

#include "ops/executor.hpp"

#include <keel/kv.h>

#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// The sizes and types of a cache. They are the same for all layers.
struct KvShape {
    // heads: number of query heads, for scores
    uint32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
    keel_dtype key_dtype = KEEL_DTYPE_F16, value_dtype = KEEL_DTYPE_F16;
    uint32_t block_slots = 64; // a power of two
    // the most slots of a head; block tables have room for this number, rounded up to whole blocks
    int64_t max_slots = 0;
    // The most bytes of blocks in use, K and V, of all layers and forks together. 0: no limit.
    uint64_t max_bytes = 0;
    uint64_t cap_beside = 0; // bytes of kv.max_mib that the cache of the layers with a window takes
    uint32_t sequences = 1;  // the most caches at the same time, including forks
    // If above 0, all layers have an attention window of this many tokens. Then the cache frees
    // blocks if no later query attends to their tokens (KvCache::hold_window).
    int64_t window = 0;

    bool operator==(const KvShape &) const = default;

    int64_t blocks_per_head() const { return (max_slots + block_slots - 1) / block_slots; }
    // The most blocks of a layer.
    int64_t capacity_blocks() const { return blocks_per_head() * kv_heads * sequences; }
    uint64_t key_block_bytes() const {
        return block_slots * keel_dtype_row_bytes(key_dtype, head_dim);
    }
    uint64_t value_block_bytes() const {
        return block_slots * keel_dtype_row_bytes(value_dtype, head_dim);
    }
    uint64_t block_bytes() const { return key_block_bytes() + value_block_bytes(); } // K and V
    // Bytes of a token in all layers and heads. Unused slots of blocks are not counted.
    uint64_t bytes_per_token() const;
    // Returns the number of slots of a head after `tokens` tokens without evictions. This is
    // `tokens`, or with a window the slots that KvCache::hold_window() leaves.
    int64_t held_slots(int64_t tokens) const;
    // Returns a text for messages: "kv.max_mib = 8", or "kv.max_mib = 8 (of which attention windows
    // take 2)".
    std::string cap_text() const;
    uint64_t bytes_of(int64_t slots) const; // bytes of whole blocks for `slots` slots in all heads

    // Bytes that a full sequence takes in addition to its keys and values: block tables and
    // positions on the device and on the host, the lists of an eviction, the owners of the arenas'
    // blocks. These bytes depend on max_slots, not on the number of slots in use.
    uint64_t book_bytes() const;

    static constexpr int64_t most_slots = int64_t{1} << 30; // so that slots and positions are int32

    // Throws Error(input) with the config key if a dtype does not fit head_dim or a number is out
    // of range.
    void check() const;
};

// Returns the most slots of a head that a cache with a window holds: the window, the tokens of a
// step, and two blocks. One of these blocks can be partly outside of the window. The other block is
// kept so that a few tokens can be removed.
int64_t window_slots(int64_t window, int64_t step_tokens, uint32_t block_slots);

// The layers of an engine that have an attention window, if the engine also has layers without one.
// These layers have their own cache.
struct WindowedLayers {
    KvShape shape;                // layers 0: the engine has no such layers
    std::vector<bool> has_window; // [layers of the engine]; empty: the engine has no such layers
    // The number of slots per head that the window needs, see window_slots(). `slots` is also set
    // if all layers of the engine have a window.
    int64_t slots = 0;
};

// The caches that one sequence has on an engine.
struct KvLayout {
    // Shape of the layers without a window. If all layers or no layers have a window: shape of all
    // layers.
    KvShape shape;
    WindowedLayers windowed;
    int64_t max_tokens = 0; // the most tokens of a sequence, if `shape` has a window
};

// A view without memory, for planning ops before a cache exists: the largest arenas, tables and
// lengths.
class KvTemplate {
  public:
    explicit KvTemplate(const KvShape &shape);
    KvTemplate(const KvTemplate &) = delete;
    KvTemplate &operator=(const KvTemplate &) = delete;

    const keel_kv_view *view() const { return &view_; }

  private:
    Tensor k_, v_, table_, lengths_, positions_;
    keel_kv_view view_ = {KEEL_HEADER(keel_kv_view)};
};

} // namespace keel
