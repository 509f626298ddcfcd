#pragma once

#include "ops/executor.hpp"

#include <keel/kv.h>

#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// The sizes and types of a cache. They are the same for all layers.
struct KvShape {
    uint32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0; // heads: query heads, for scores
    keel_dtype key_dtype = KEEL_DTYPE_F16, value_dtype = KEEL_DTYPE_F16;
    uint32_t block_slots = 64; // a power of two
    int64_t max_slots = 0;     // the most slots of a head; block tables have room for whole blocks
    // The most bytes of blocks in use, K and V, of all layers and forks together. 0: no limit.
    uint64_t max_bytes = 0;
    uint64_t cap_beside = 0; // the part of kv.max_mib that the cache of layers with a window takes,
                             // in bytes
    uint32_t sequences = 1;  // the most caches at a time, forks included
    // If above 0, all layers have an attention window of this many tokens, and the cache frees the
    // blocks to whose tokens no later query attends (KvCache::hold_window).
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
    // The slots of a head after `tokens` tokens without evictions: all tokens, or with a window the
    // slots that KvCache::hold_window() leaves.
    int64_t held_slots(int64_t tokens) const;
    // For messages: "kv.max_mib = 8", or "kv.max_mib = 8 (of which attention windows take 2)".
    std::string cap_text() const;
    uint64_t bytes_of(int64_t slots) const; // bytes of whole blocks for `slots` slots in all heads

    // Bytes that a full sequence takes in addition to its keys and values: block tables and
    // positions on the device and on the host, the lists of an eviction, the owners of the arenas'
    // blocks. They depend on max_slots, not on the number of slots in use.
    uint64_t book_bytes() const;

    static constexpr int64_t most_slots = int64_t{1} << 30; // so that slots and positions are int32

    // Throws Error(input) with the config key if a dtype does not fit head_dim or a number is out
    // of range.
    void check() const;
};

// The most slots of a head that a cache with a window holds: the window, the tokens of a step, and
// two blocks. One of these blocks may be partly outside of the window. The other block is kept so
// that a few tokens can be removed.
int64_t window_slots(int64_t window, int64_t step_tokens, uint32_t block_slots);

// The layers of an engine that have an attention window, if the engine also has layers without one.
// These layers have their own cache.
struct WindowedLayers {
    KvShape shape;                // layers 0: there are none
    std::vector<bool> has_window; // [layers of the engine]; empty: there are none
    // The number of slots per head that the window needs, see window_slots(). `slots` is also set
    // if all layers of the engine have a window.
    int64_t slots = 0;
};

// The caches that one sequence has on an engine.
struct KvLayout {
    // Shape of the layers without a window; or of all layers, if all layers or no layers have a
    // window.
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
