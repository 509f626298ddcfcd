#pragma once

#include "graph/step_tap.hpp"
#include "kv/evict/policy_setup.hpp"
#include "kv/inputs/query_stats.hpp"
#include "kv/inputs/slot_sums.hpp"
#include "kv/inputs/window_scores.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

class KeyUnrotation;

// The inputs of one sequence's policy, except for lengths and positions. It has only the inputs
// that the setup needs. Some inputs are collected while steps run (Collected of the setup). The
// other inputs are computed from the cache at an eviction. An eviction reads the inputs back from
// the device, so it waits for the stream. The class has many members, because each kind of input
// has its own buffers and state.
//
// The class uses little memory. An eviction computes and reads the inputs of some layers at a time.
// Memory that only the end of a prompt needs is freed after the prompt.
class PolicyInputs final : public StepTap {
  public:
    // `setup` must outlive this object. Memory is allocated when it is first needed.
    PolicyInputs(PolicySetup &setup, keel_buffer_kind placement);
    ~PolicyInputs();
    PolicyInputs(const PolicyInputs &) = delete;
    PolicyInputs &operator=(const PolicyInputs &) = delete;

    // ---- steps ----

    // Begins a step. Call it after the slots of the step's tokens were appended and before the
    // step's ops. Returns the tap that receives the graph's by-products. Returns NULL if the policy
    // needs no by-products.
    StepTap *begin_step(const KvCache &cache, const WindowScores::Step &step);
    Places places(uint32_t layer) override;
    void after_attention(uint32_t layer, const Tensor &q) override;
    bool is_usual() const override { return !window_ || window_->is_usual(); }
    // Call it after a prompt and its eviction. Frees the inputs that no later eviction needs, and
    // the memory of sums whose slots were evicted.
    void end_prompt(const KvCache &cache);

    // ---- an eviction ----

    struct Eviction {
        uint64_t needs = 0; // bits KEEL_NEED_* of the policy, or of the rule that replaces the
                            // policy
        uint32_t layers = 0;
        int64_t stride = 0; // slots of the longest head
        int64_t tail = 0;   // number of the newest tokens that are in all heads
        int64_t seen = 0;   // number of tokens so far
    };
    // Returns true if an eviction with these needs reads anything from the device.
    static bool reads(uint64_t needs) { return (needs & ~uint64_t{KEEL_NEED_POSITIONS}) != 0; }
    // Returns true if there are queries for window scores. `tail`: number of the newest tokens that
    // are in all heads.
    bool has_queries(const KvCache &cache, int64_t tail);
    // Begins an eviction. compute() and fill() follow.
    void begin_eviction(const KvCache &cache, const Eviction &eviction);
    // Returns the number of layers to compute at a time. It is chosen so that no array takes much
    // memory.
    uint32_t layers_at_a_time() const;
    // Computes the policy's inputs for the layers first to first + layers - 1 on the device, and
    // copies the inputs to host memory. Keys and query statistics are not copied here: fill()
    // copies them, one layer at a time.
    void compute(const KvCache &cache, uint32_t first, uint32_t layers);
    // Points `input` at the inputs that compute() made for a layer. Valid until the next call.
    void fill(const KvCache &cache, uint32_t layer, keel_policy_input &input);
    // Returns the tensors with one entry per slot of this layer. A compaction moves their entries
    // together with the slots.
    std::vector<Tensor> companions(uint32_t layer) const;
    // Call it after each compaction.
    void compacted(const KvCache &cache);
    // Returns an array for the scores of a repeated context (KEEL_NEED_REPLAY), f32 [layers *
    // kv_heads, slots], all 0. The eviction passes the scores to the policy. `slots`: the most
    // slots that a head has while the model repeats the context.
    const Tensor &repeat_scores(int64_t slots);

    // Call it after an eviction. `again_soon`: true keeps the arrays for the next eviction, false
    // frees them.
    void finish_eviction(bool again_soon);
    // Returns the bytes in use on device and host: collected inputs, and the arrays of the last
    // eviction.
    uint64_t bytes() const;
    // Returns an estimate of the largest value of bytes() for a context of `context` tokens.
    // `held`: number of these tokens that the cache holds when slots are evicted. Allocates no
    // memory.
    static uint64_t bytes(const PolicySetup &setup, int64_t context, int64_t held);

    // ---- a sequence's life ----
    // Returns true if the last n of `seen` tokens can be removed again.
    bool can_truncate(int64_t n, int64_t seen) const;
    void truncate(const KvCache &cache, int64_t n,
                  int64_t seen); // `seen`: tokens before the call; the cache was already truncated
    void reset();
    // Copies inputs from another object of the same shape. Copies the inputs that the other object
    // has collected and that this setup needs (PolicySetup::collected).
    void copy_from(PolicyInputs &other, const KvCache &cache);
    // Like copy_from(), but from an object on another device. `cache` must have the same lengths as
    // the cache on that device.
    void take_over(PolicyInputs &other, const KvCache &cache);
    void save(StateWriter &out, const KvCache &cache);
    void load(StateReader &in, const KvCache &cache, int64_t seen);

  private:
    struct Piece {
        int64_t begin, end; // tokens of the step
    };
    // Returns the number of layers to compute at a time in an eviction of `layers` layers. The
    // longest head of these layers has `stride` slots.
    static uint32_t layers_at_a_time(const PolicySetup &setup, uint32_t layers, int64_t stride);
    bool needs(uint64_t bit) const { return (eviction_.needs & bit) != 0; }
    Tensor room(ReadArray &array, int64_t rows, int64_t columns);
    void queue_keys(PlannedOp *op, uint64_t features, const KvCache &cache, uint32_t layer,
                    const Tensor &out);
    void queue_layer(const KvCache &cache, uint32_t layer);
    void queue_anchor(const KvCache &cache, uint32_t layer);
    void queue_sums(const SlotSums &sums, ReadArray &array);
    void read_all();
    void release();
    const keel_tensor *positions_of(int64_t first, int64_t n);
    void score_piece(uint32_t layer, const Tensor &q, const Piece &piece);
    const float *read_keys(PlannedOp *op, const KvCache &cache, uint32_t layer, int64_t columns,
                           const Tensor &matrix, ReadArray &array);

    PolicySetup &setup_;
    keel_buffer_kind placement_;

    std::unique_ptr<WindowScores> window_;
    std::unique_ptr<SlotSums> running_, chunks_;
    std::vector<SlotSums *> sums_; // running_ and chunks_, without NULL
    std::unique_ptr<QueryStats> stats_;

    // The current step.
    const KvCache *step_cache_ = nullptr;
    int64_t step_first_ = 0, step_ = 0; // first token, number of tokens
    QueryPositions query_positions_;
    keel_scores step_scores_ = {KEEL_HEADER(keel_scores)};
    std::vector<Piece> pieces_;

    // The current eviction.
    Eviction eviction_;
    uint32_t first_ = 0, layers_ = 0; // the arguments of compute()
    int64_t queries_ = 0;
    struct Inputs { // inputs of the computed layers, in host memory
        const float *key_norms = nullptr, *value_norms = nullptr, *scores = nullptr,
                    *key_sum = nullptr, *key_anchor = nullptr, *chunk_scores = nullptr;
    };
    Inputs read_;
    ReadArray key_norms_, value_norms_, scores_, key_sum_, key_anchor_, chunk_scores_;
    ReadArray keys_, key_project_;                // arrays of one layer
    std::vector<float> query_sum_, query_second_; // copies for the host, if it cannot access the
                                                  // device's memory
    std::vector<float> no_scores_;                // zeros
    Tensor repeat_scores_, projection_, ranges_;
    std::unique_ptr<KeyUnrotation> unrotation_; // for keys before RoPE
};

} // namespace keel
