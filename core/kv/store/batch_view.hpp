#pragma once

#include "kv/store/kv_cache.hpp"

#include <keel/ext/draft/batched_decode.h>

#include <span>
#include <vector>

namespace keel {

// Makes views of several caches. The extension keel.batched_decode/1 reads these views. The caches
// share an arena, and each has a seat in it (KvArena::seats). Not thread-safe.
class BatchView {
  public:
    // Makes views of caches in this arena. A view has at most `most` caches.
    BatchView(KvArena &arena, uint32_t most);

    // Returns one view for each layer, for a step whose row i is a token of caches[i]. The views
    // are valid until the next call. Returns an empty list if a cache is in another arena or has no
    // seat. Queues a write of the seats' numbers to the device.
    std::span<const keel_batch_kv *const> of(std::span<KvCache *const> caches);

  private:
    struct Layer {
        keel_tensor table, lengths, positions;
        keel_batch_kv view = {KEEL_HEADER(keel_batch_kv)};
    };

    KvArena &arena_;
    Tensor seats_, seats_in_use_; // seats_: i32 [most]. seats_in_use_: the rows of seats_ that are
                                  // in use
    std::vector<int32_t> host_seats_;
    std::vector<Layer> layers_;
    std::vector<const keel_batch_kv *> views_;
};

// A view of `n` sequences without memory, for planning calls before a cache exists. It has the
// largest arenas, tables and lengths, and a seat for each sequence that the shape allows.
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
