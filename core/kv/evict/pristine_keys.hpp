#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/store/held_bytes.hpp"

#include <memory>
#include <span>
#include <vector>

namespace keel {

// The original codes of quantized keys that were rotated. Before the first rotation of a key, its
// codes are copied here. Each rotation starts from this copy. Reading codes and writing them again
// in the same type does not change them. So a key is rounded only twice: when it was written, and
// at its last rotation.
//
// In each head, keys that were rotated have lower slots than keys that were never rotated. The
// reason: an eviction that leaves a gap rotates all keys before the gap. The copy counts as cache
// memory: in KvArena's bytes, and against kv.max_mib.
class PristineKeys {
  public:
    // The arena of `cache` must outlive this object.
    PristineKeys(PolicySetup &setup, KvCache &cache, keel_buffer_kind placement);
    ~PristineKeys();
    PristineKeys(const PristineKeys &) = delete;
    PristineKeys &operator=(const PristineKeys &) = delete;

    // Returns true if the slots in `keep` and the copies of their keys fit within kv.max_mib. If
    // they do not fit, `why` gets the reason.
    static bool fits(const PolicySetup &setup, const KvCache &cache,
                     std::span<const KeepLists> keep, std::string *why);
    // Call it after a layer was compacted to the slots in `keep`.
    void record_compact(uint32_t layer, const KeepLists &keep);
    // Returns the original keys of a layer, f32 [kv_heads, n, head_dim]. These are the keys that
    // move now (the slots below ends[h] of head h) and the keys that moved earlier. n is the
    // largest number of such slots in a head. Also copies the keys that move for the first time.
    // The result is valid until the next call.
    const Tensor &take(const KvCache &cache, uint32_t layer, std::span<const int64_t> ends);
    // Returns the position for which the original key of a slot was rotated. Call it after take().
    int32_t origin(uint32_t layer, uint32_t head, int64_t slot) const {
        return origins_[row(layer, head)][static_cast<size_t>(slot)];
    }
    uint64_t bytes() const;
    // Bytes of temporary rows.
    uint64_t work_bytes() const { return held_bytes(room_) + held_bytes(ids_); }
    void truncate(const KvCache &cache);
    void copy_from(const PristineKeys &other);
    void save(StateWriter &out) const;
    void load(StateReader &in, const KvCache &cache);

  private:
    struct Layer {
        Tensor codes;      // the K dtype, [kv_heads, slots, head_dim]
        int64_t slots = 0; // 0: no copies
    };
    size_t row(uint32_t layer, uint32_t head) const {
        return size_t{layer} * setup_.shape().kv_heads + head;
    }
    int64_t held(uint32_t layer, uint32_t head) const {
        return std::ssize(origins_[row(layer, head)]);
    }
    uint64_t row_bytes() const {
        return keel_dtype_row_bytes(setup_.shape().key_dtype, setup_.shape().head_dim);
    }
    void gather(uint32_t layer, uint32_t head, int64_t slots);
    void resize(Layer &layer, int64_t slots);

    PolicySetup &setup_;
    KvArena &arena_;
    keel_buffer_kind placement_;
    std::vector<Layer> layers_;
    // [layers, kv_heads]: entries for each slot that has a copy, from slot 0 on. origins_ has the
    // slot's origin(). sources_ has the number of the slot's row in the codes.
    std::vector<std::vector<int32_t>> origins_;
    std::vector<std::vector<int32_t>> sources_;
    Tensor rows_, room_; // f32 rows of one layer, and their memory
    Tensor ids_;         // i32 [slots]
};

} // namespace keel
