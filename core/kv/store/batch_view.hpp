#pragma once

#include "kv/store/kv_cache.hpp"

#include <keel/ext/draft/batched_decode.h>

#include <span>
#include <vector>

namespace keel {

// The caches of a step's sequences as keel.batched_decode/1 takes them: one arena, the books on
// their seats. Not thread-safe.
class BatchView {
  public:
    // Of caches in this arena, at most `most` at once.
    BatchView(KvArena &arena, uint32_t most);

    // The views of these caches, in this order, by layer; valid until the next call. Empty if one
    // of them lies elsewhere or has no seat. Queues the list of seats.
    std::span<const keel_batch_kv *const> of(std::span<KvCache *const> caches);

  private:
    struct Layer {
        keel_tensor table, lengths, positions;
        keel_batch_kv view = {KEEL_HEADER(keel_batch_kv)};
    };

    KvArena &arena_;
    Tensor seats_, seats_in_use_; // i32 [most]; its first rows
    std::vector<int32_t> host_seats_;
    std::vector<Layer> layers_;
    std::vector<const keel_batch_kv *> views_;
};

// A view without memory of `n` sequences, for settling calls before a cache exists: the largest
// arenas, tables and lengths, and a seat for each sequence that the shape allows.
class BatchTemplate {
  public:
    BatchTemplate(const KvShape &shape, uint32_t n);
    BatchTemplate(const BatchTemplate &) = delete;
    BatchTemplate &operator=(const BatchTemplate &) = delete;

    const keel_batch_kv *view() const { return &view_; }

  private:
    Tensor k_, v_, table_, lengths_, positions_, seats_;
    keel_batch_kv view_ = {KEEL_HEADER(keel_batch_kv)};
};

} // namespace keel
