#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/evict/pristine_keys.hpp"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// Closes the gaps that evictions leave between positions, so that distances between keys, and
// between keys and the tokens to come, follow the slots. Query positions are never changed: a
// head's newest key stays where it is, and what lies left of a gap moves towards it. With a window
// behind protected slots that is the protected prefix, and nothing else.
//
// Guarantees:
// - The protected prefix is made again each time from an f32 copy of what was first written,
//   rotated once by the whole difference (computed in float64): one rounding to f32 and one to the
//   K dtype, however often it moves.
// - Other keys left of a gap (a policy that keeps scattered slots) are rotated in place, which
//   rounds to the K dtype once per move: f32, f16 and bf16.
// - Quantized keys, the prefix too, are made again from a copy of their codes (PristineKeys).
class Rerotation {
  public:
    // `prefix`: protected slots at the front.
    Rerotation(PolicySetup &setup, keel_buffer_kind placement, int64_t prefix);

    // Has a layer to be closed now? With positions `automatic`: if, before `coming` more tokens
    // after the first `seen`, its oldest key would be farther back than the model was trained for.
    bool is_due(const KvCache &cache, uint32_t layer, int64_t seen, int64_t coming) const;
    // After compact(): moves the keys of a layer so that its positions are contiguous up to the
    // newest. The keys moved.
    int64_t close(KvCache &cache, uint32_t layer);
    // A layer was compacted to these slots; before close().
    void record_compact(uint32_t layer, const KeepLists &keep);
    // Is there memory to go on if only these slots are left? If not: why, in words.
    bool can_hold(const KvCache &cache, std::span<const KeepLists> keep, std::string *why) const;
    uint64_t copied_bytes() const { return copies_ ? copies_->bytes() : 0; } // of quantized keys
    // Of what else this needs: the prefix as it was first written, tables, and rows on their way.
    uint64_t work_bytes() const;
    // About what work_bytes() comes to in a context of so many tokens, of which the cache holds
    // `held` when slots are evicted. Known before anything is made; the policy evicts.
    static uint64_t work_bytes(const PolicySetup &setup, int64_t context, int64_t held);
    // The sequence was cut: protected slots from the shortest head's length on will be written
    // anew.
    void truncate(const KvCache &cache);
    // `cache`: the fork's.
    std::unique_ptr<Rerotation> fork(PolicySetup &setup, KvCache &cache) const;
    // What another one of the same sequence on another device keeps, if its keys are of the same
    // type; else nothing is copied, and a key that moves again is rotated from what the cache holds
    // by then. `cache`: this one's.
    std::unique_ptr<Rerotation> take_over(PolicySetup &setup, KvCache &cache,
                                          keel_buffer_kind placement) const;
    // Writes the pristine copy of the protected prefix, and takes it in again; `cache` holds the
    // sequence by then.
    void save(StateWriter &out) const;
    void load(StateReader &in, KvCache &cache);

  private:
    std::unique_ptr<Rerotation> copy_to(PolicySetup &setup, KvCache &cache,
                                        keel_buffer_kind placement) const;
    void capture(KvCache &cache, uint32_t layer);
    // Where keys come from that are not rotated in place: f32 [kv_heads, n, head_dim] for slots
    // 0..n-1, and the position that each was first written for.
    struct Source {
        keel_tensor keys;
        std::function<int32_t(uint32_t head, int64_t slot)> origin;
    };
    int64_t close_quantized(KvCache &cache, uint32_t layer, int64_t end);
    int64_t move(KvCache &cache, uint32_t layer, int64_t begin, int64_t end, const Source *source);
    void run_move(KvCache &cache, uint32_t layer, int64_t begin, int64_t end, const Source *source);
    void write_tables(uint32_t layer);
    void make_buffers();

    PolicySetup &setup_;
    keel_buffer_kind placement_;
    std::unique_ptr<PristineKeys> copies_; // of quantized keys; made when the first one moves
    int64_t protected_;                    // slots at the front that stay
    int64_t prefix_;  // 0 where keys are quantized: the prefix is among the copies
    Tensor pristine_; // f32 [layers * kv_heads, prefix, head_dim]; made at the first move
    std::vector<int64_t> captured_; // [layers] slots of pristine_ that hold something
    std::vector<int32_t>
        origin_;       // [layers, kv_heads, prefix] position that a pristine key is rotated for
    Tensor cos_, sin_; // f32 [rerotate_rows, rot / 2]
    Tensor row_, new_positions_;  // i32 [kv_heads, slots]
    std::vector<int64_t> shifts_; // of the call in the making: row r turns by so many positions
    std::vector<int32_t> host_row_, host_positions_;
    std::vector<float> host_cos_, host_sin_;
};

} // namespace keel
