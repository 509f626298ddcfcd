#pragma once

#include "graph/step_tap.hpp"
#include "kv/evict/policy_setup.hpp"
#include "kv/inputs/query_ring.hpp"
#include "kv/inputs/query_stats.hpp"
#include "kv/inputs/slot_sums.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

class KeyUnrotation;

// The inputs of one sequence's policy, apart from lengths and positions: only those that its setup
// needs. Some are collected while steps run (the setup's Collected), the others are computed from
// the cache at an eviction. Evictions read them back, so they wait for the stream. It has
// many members because each kind of input has its buffers and its state.
class PolicyInputs final : public StepTap {
  public:
    // `setup` outlives this. Memory is taken when it is first needed.
    PolicyInputs(PolicySetup &setup, keel_buffer_kind placement);
    ~PolicyInputs();
    PolicyInputs(const PolicyInputs &) = delete;
    PolicyInputs &operator=(const PolicyInputs &) = delete;

    // ---- steps ----

    // The n slots of a step's tokens were appended, its ops come next; the first token has the
    // number `first`. Returns the tap for the graph's by-products; NULL: none are
    // needed.
    StepTap *begin_step(const KvCache &cache, int64_t first, int64_t n, bool is_prompt);
    Places places(uint32_t layer) override;
    void after_attention(uint32_t layer, const Tensor &q) override;

    // ---- an eviction ----
    // Does one read anything from the device?
    bool reads() const { return (setup_.needs().needs & ~uint64_t{KEEL_NEED_POSITIONS}) != 0; }
    // Computes the policy's inputs for the first `layers` layers and reads them at once. Only keys
    // are read layer by layer, in fill(). `stride`: the longest head. `tail`: newest tokens that
    // are in all heads; `seen`: tokens so far.
    void compute(const KvCache &cache, uint32_t layers, int64_t stride, int64_t tail, int64_t seen);
    // Points `input` at what was computed of a layer. Valid until the next call.
    void fill(const KvCache &cache, uint32_t layer, keel_policy_input &input);
    // Tensors that move along with a layer's slots.
    std::span<const Tensor> companions(uint32_t layer) const;
    // After a compaction.
    void compacted(const KvCache &cache);
    // Scores of a replay, f32 [layers * kv_heads, slots], all 0, for compute() to hand over.
    const Tensor &repeat_scores();

    // Gives the arrays of the last eviction back. What is collected stays.
    void release();
    // Bytes in use on device and host: collected inputs, and the arrays of the last eviction.
    uint64_t bytes() const;
    // An estimate of bytes() for a context of this many tokens, of which the cache holds `held`
    // when slots are evicted. Needs no allocated memory.
    static uint64_t bytes(const PolicySetup &setup, int64_t context, int64_t held);

    // ---- a sequence's life ----
    // Can the last n of `seen` tokens be taken back?
    bool can_truncate(int64_t n, int64_t seen) const;
    void truncate(const KvCache &cache, int64_t n,
                  int64_t seen); // `seen`: before; the cache was cut already
    void reset();
    // Takes over the inputs for this setup that another object of the same shape has collected
    // (PolicySetup::collected).
    void copy_from(PolicyInputs &other, const KvCache &cache);
    // The same from another device's; `cache` has the lengths of that one's.
    void take_over(PolicyInputs &other, const KvCache &cache);
    void save(StateWriter &out, const KvCache &cache);
    void load(StateReader &in, const KvCache &cache, int64_t seen);

  private:
    // Rows of f32 for each layer, on the device and as last read.
    struct Array {
        Tensor device;
        std::vector<float> host;
    };
    struct Piece {
        int64_t begin, end; // tokens of the step
    };
    bool needs(uint64_t bit) const { return (setup_.needs().needs & bit) != 0; }
    Tensor room(Array &array, int64_t rows, int64_t columns);
    void queue_keys(PlannedOp *op, uint64_t features, const KvCache &cache, uint32_t layer,
                    const Tensor &out);
    void queue_layer(const KvCache &cache, uint32_t layer);
    void queue_window(const KvCache &cache, uint32_t layer);
    void queue_anchor(const KvCache &cache, uint32_t layer);
    void read(Array &array, int64_t rows, int64_t columns);
    const keel_tensor *positions_of(int64_t first, int64_t n);
    void score_piece(uint32_t layer, const Tensor &q, const Piece &piece);
    const float *read_keys(PlannedOp *op, const KvCache &cache, uint32_t layer, int64_t columns,
                           const Tensor &matrix, Array &array);

    PolicySetup &setup_;
    keel_buffer_kind placement_;

    std::unique_ptr<QueryRing> ring_;
    std::unique_ptr<SlotSums> running_, chunks_;
    std::unique_ptr<QueryStats> stats_;
    std::vector<std::vector<Tensor>> companions_; // [layers]

    // Of the step in the making.
    const KvCache *step_cache_ = nullptr;
    int64_t first_ = 0, step_ = 0; // first token, number of tokens
    QueryPositions query_positions_;
    Tensor step_row_;
    keel_scores step_scores_ = {KEEL_HEADER(keel_scores)};
    std::vector<Piece> pieces_;

    // Of the eviction in the making.
    uint32_t layers_ = 0;
    int64_t stride_ = 0, queries_ = 0, seen_ = 0;
    Array key_norms_, value_norms_, scores_, key_sum_, key_anchor_, query_sum_, query_second_,
        chunk_scores_;
    Array keys_, key_project_; // of one layer
    Tensor repeat_scores_, projection_, ranges_;
    std::unique_ptr<KeyUnrotation> unrotation_; // for keys before RoPE
};

} // namespace keel
