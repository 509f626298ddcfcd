#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/evict/pristine_keys.hpp"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// Closes the gaps that evictions leave between positions. After that, the positions of a head's
// keys are contiguous, so the distance of two keys equals the distance of their slots. Query
// positions never change: a head's newest key keeps its position, and the keys before a gap move
// towards it. If only the protected prefix and the newest tokens stay, only the prefix moves.
//
// Guarantees:
// - The keys of the protected prefix are computed each time from an f32 copy of the first keys,
//   rotated once by the whole difference (computed in float64). So they are rounded once to f32 and
//   once to the K dtype. The number of moves does not matter.
// - Other keys before a gap (if a policy keeps scattered slots) are rotated in place. If the K
//   dtype is f32, f16 or bf16, each move rounds the keys again.
// - Quantized keys, including the keys of the prefix, are computed again from a copy of their codes
//   (PristineKeys).
//
// The class has 17 members: the copies, and the tables and lists of a move. The next move uses the
// memory of the tables and lists again.
class Rerotation {
  public:
    // `prefix`: protected slots at the front.
    Rerotation(PolicySetup &setup, keel_buffer_kind placement, int64_t prefix);

    // Returns true if a layer needs close() now. With positions `automatic`, a layer needs close()
    // if its oldest key would be too far back after `seen` + `coming` tokens: farther than the
    // model was trained for.
    bool is_due(const KvCache &cache, uint32_t layer, int64_t seen, int64_t coming) const;
    // Call it after compact(). Rotates the keys of a layer so that the positions are contiguous up
    // to the position of the newest key. Returns the number of keys moved.
    int64_t close(KvCache &cache, uint32_t layer);
    // Call it after a layer was compacted to the slots in `keep`, and before close().
    void record_compact(uint32_t layer, const KeepLists &keep);
    // Returns true if there is enough memory when only the slots in `keep` are left. If there is
    // not, `why` gets the reason.
    bool can_hold(const KvCache &cache, std::span<const KeepLists> keep, std::string *why) const;
    // Bytes of copies of quantized keys.
    uint64_t copied_bytes() const { return copies_ ? copies_->bytes() : 0; }
    // Bytes of the pristine prefix, the tables, and temporary rows.
    uint64_t work_bytes() const;
    // Returns an estimate of work_bytes() for a context of `context` tokens, if the cache holds
    // `held` of these tokens when slots are evicted. Allocates no memory. Only for a policy that
    // evicts.
    static uint64_t work_bytes(const PolicySetup &setup, int64_t context, int64_t held);
    // Call it after tokens were removed from the sequence. The protected slots from the length of
    // the shortest head on will be written again.
    void truncate(const KvCache &cache);
    // Makes the Rerotation of a fork. `cache` is the cache of the fork.
    std::unique_ptr<Rerotation> fork(PolicySetup &setup, KvCache &cache) const;
    // Makes the Rerotation of this sequence on another device, whose cache is `cache`. If keys have
    // the same type on both devices, copies the pristine keys. Otherwise the next move of a key
    // starts from the key's value in the new cache.
    std::unique_ptr<Rerotation> take_over(PolicySetup &setup, KvCache &cache,
                                          keel_buffer_kind placement) const;
    // Writes and reads the pristine copy of the protected prefix. When it is read, `cache` already
    // holds the sequence.
    void save(StateWriter &out) const;
    void load(StateReader &in, KvCache &cache);

  private:
    std::unique_ptr<Rerotation> copy_to(PolicySetup &setup, KvCache &cache,
                                        keel_buffer_kind placement) const;
    void capture(KvCache &cache, uint32_t layer);
    // The source of keys that are not rotated in place: f32 [kv_heads, n, head_dim] for the slots
    // 0..n-1. Also the position for which each key was first written.
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
    // Copies of quantized keys; made when the first key moves.
    std::unique_ptr<PristineKeys> copies_;
    int64_t protected_; // number of slots at the front that always stay
    int64_t prefix_;    // length of the prefix; 0 if keys are quantized, because then copies_ has
                        // the keys of the prefix
    Tensor pristine_;   // f32 [layers * kv_heads, prefix, head_dim]; made at the first move
    std::vector<int64_t> captured_; // [layers] number of slots whose keys are in pristine_
    std::vector<int32_t> origin_;   // [layers, kv_heads, prefix]: the position for which a pristine
                                    // key is rotated
    Tensor cos_, sin_;              // f32 [rerotate_rows, rot / 2]
    Tensor row_, new_positions_;    // i32 [kv_heads, slots]
    std::vector<int64_t> shifts_;   // in the prepared call, row r rotates by shifts_[r] positions
    std::vector<int32_t> host_row_, host_positions_;
    std::vector<float> host_cos_, host_sin_;
};

} // namespace keel
