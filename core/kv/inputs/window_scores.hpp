#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/inputs/query_ring.hpp"
#include "kv/inputs/read_array.hpp"
#include "kv/inputs/step_kind.hpp"
#include "kv/store/state_io.hpp"

#include <memory>

namespace keel {

// The attention of a sequence's last queries over the slots: KEEL_NEED_WINDOW_SCORES. If the step
// before an eviction has all these queries, the step computes the scores layer by layer. The
// queries are then not stored. Otherwise the queries are stored in a ring, see RingUse. Queries are
// also stored from a pause in a prompt to the end of the prompt.
class WindowScores {
  public:
    // `setup` must outlive this object.
    WindowScores(PolicySetup &setup, keel_buffer_kind placement)
        : setup_(setup), placement_(placement) {}

    // ---- steps ----
    struct Step {
        StepKind kind = StepKind::decode;
        // The number of the step's first token, and the number of tokens. Their slots already
        // exist.
        int64_t first = 0, n = 0;
        bool evicts = false; // slots are evicted after the step
    };
    // Begins a step. Returns false if this step keeps no queries and computes no scores.
    bool begin(const KvCache &cache, const Step &step);
    // Returns true if the step queues the same ops as every other decode step.
    bool is_usual() const { return !scores_step_ && (!keeps_step_ || has_place()); }
    // Returns the tensor to which a step of one token writes the layer's queries. Returns NULL if
    // the queries are not kept. The tensor is valid until the next call.
    const Tensor *place(uint32_t layer);
    // Call it after the layer's attention was queued. `q`: the queries of the layer.
    void take(const KvCache &cache, uint32_t layer, const Tensor &q);

    // ---- an eviction ----
    // Returns the number of queries from which this eviction's scores are computed. 0: there are no
    // queries. `tail`: number of the newest tokens that are in all heads.
    int64_t prepare(int64_t tail, int64_t stride);
    // Queues the scores of the layers first to first + layers - 1. Call it after prepare(). `seen`:
    // number of tokens since the start.
    void queue(const KvCache &cache, uint32_t first, uint32_t layers, int64_t stride, int64_t seen);
    // Returns the layers' scores [layers * rows(), stride] on the host. Valid until the next call.
    const float *read(uint32_t first, uint32_t layers);
    int64_t rows() const; // rows of scores per layer
    // Frees the memory of one eviction.
    void release();
    // Call it at the end of a prompt. Frees the scores, and also the queries if no later eviction
    // can read them.
    void end_prompt();

    // ---- a sequence's life ----
    void drop(int64_t n);
    void clear();
    void take_over(WindowScores &other);
    void save(StateWriter &out);
    void load(StateReader &in, int64_t seen);
    uint64_t bytes() const;
    // Returns an estimate of bytes() if there are `held` slots per head at an eviction. Allocates
    // no memory.
    static uint64_t bytes(const PolicySetup &setup, int64_t held);

  private:
    QueryRing &ring();
    // Returns true if decode steps write their queries directly into the ring.
    bool has_place() const { return setup_.ring_use() != RingUse::none; }
    // `first`: number of the token of the first query.
    void queue_scores(const KvCache &cache, uint32_t layer, const Tensor &q, int64_t first,
                      const Tensor &out);

    PolicySetup &setup_;
    keel_buffer_kind placement_;
    std::unique_ptr<QueryRing> ring_; // NULL: no queries are kept
    Tensor row_;

    // State of the current step.
    int64_t first_ = 0, step_ = 0; // first token, number of tokens
    bool keeps_step_ = false, scores_step_ = false;
    // Either the scores that the last step computed, for all layers, or the scores that an eviction
    // computes, for some layers.
    ReadArray scores_;
    int64_t stride_ = 0, queries_ = 0;
    QueryPositions positions_;
    Tensor ordered_; // [window, heads, head_dim]: a layer's queries, copied from the ring in order
};

} // namespace keel
