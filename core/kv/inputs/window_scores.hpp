#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/inputs/query_ring.hpp"
#include "kv/inputs/read_array.hpp"
#include "kv/store/state_io.hpp"

#include <memory>

namespace keel {

// The attention of a sequence's last queries over the slots: KEEL_NEED_WINDOW_SCORES. If an
// eviction follows a step that has the queries, the step computes the scores layer by layer. So no
// query outlives its layer. Otherwise the queries are kept in a ring, see RingUse.
class WindowScores {
  public:
    // `setup` outlives this.
    WindowScores(PolicySetup &setup, keel_buffer_kind placement)
        : setup_(setup), placement_(placement) {}

    // ---- steps ----
    struct Step {
        int64_t first = 0, n = 0; // the first token, and how many; their slots were appended
        bool is_prompt = false, is_prompt_end = false;
        bool evicts = false; // slots go after the step
    };
    // A step begins. False: it leaves nothing here.
    bool begin(const KvCache &cache, const Step &step);
    // Does the step compute scores?
    bool scores_step() const { return scores_step_; }
    // Where a step of one token writes the layer's queries; NULL: they are not kept. Valid until
    // the next call.
    const Tensor *place(uint32_t layer);
    // The layer's attention was queued, with these queries.
    void take(const KvCache &cache, uint32_t layer, const Tensor &q);

    // ---- an eviction ----
    // How many queries the scores of this eviction are of; 0: there are none. `tail`: newest tokens
    // that are in all heads.
    int64_t prepare(int64_t tail, int64_t stride);
    // Queues the scores of `layers` layers from `first` on. Call it after prepare(). `seen`: tokens
    // since the start.
    void queue(const KvCache &cache, uint32_t first, uint32_t layers, int64_t stride, int64_t seen);
    // The layers' scores [layers * rows(), stride] on the host. Valid until the next call.
    const float *read(uint32_t first, uint32_t layers);
    int64_t rows() const; // of a layer
    // Frees what served one eviction.
    void release();
    // A prompt ended. Frees the queries too if no later eviction can read them.
    void end_prompt();

    // ---- a sequence's life ----
    void drop(int64_t n);
    void clear();
    void take_over(WindowScores &other);
    void save(StateWriter &out);
    void load(StateReader &in, int64_t seen);
    uint64_t bytes() const;
    // An estimate of bytes(): `held` slots per head when slots go. Needs no allocated memory.
    static uint64_t bytes(const PolicySetup &setup, int64_t held);

  private:
    QueryRing &ring();
    // `first`: the token of the first query.
    void queue_scores(const KvCache &cache, uint32_t layer, const Tensor &q, int64_t first,
                      const Tensor &out);

    PolicySetup &setup_;
    keel_buffer_kind placement_;
    std::unique_ptr<QueryRing> ring_; // NULL: no queries are kept
    Tensor row_;

    // Of the step in the making.
    int64_t first_ = 0, step_ = 0; // first token, number of tokens
    bool keeps_step_ = false, scores_step_ = false;
    // Scores of the last step for all layers, or of some layers in an eviction.
    ReadArray scores_;
    int64_t stride_ = 0, queries_ = 0;
    QueryPositions positions_;
    Tensor ordered_; // A [window, heads, head_dim]: a layer's queries out of the ring
};

} // namespace keel
