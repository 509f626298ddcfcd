#pragma once

#include "graph/lasting_views.hpp"
#include "graph/next_token.hpp"
#include "graph/segment.hpp"
#include "graph/segment_attention.hpp"
#include "graph/tap_ops.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace keel {

struct GraphOptions {
    uint32_t max_tokens = 512; // the most tokens of one sequence in a step, which is the size of a
                               // prefill chunk
    uint32_t max_logit_rows = 1;      // the most tokens of a step that can get logits
    const keel_kv_view *kv = nullptr; // for planning: the largest cache, without memory
    TapForms taps = {};               // the by-products for which steps are planned, see taps()
    // layers without by-products; empty: all layers have by-products
    std::vector<bool> untapped = {};
    int64_t rope_rows = 2048; // rows of the RoPE tables; at least the number of tokens of a
                              // step
    int64_t context = 0;      // for kinds of RoPE that depend on the context
    uint32_t batch = 1;       // the most sequences that can take a step together
    // A view of `batch` sequences, for planning; NULL: the graph does not use
    // keel.batched_decode/1.
    const keel_batch_kv *batch_kv = nullptr;
};

// A decoder of the Llama family, or some of its layers. It runs steps on one device. A step takes
// tokens of one or several sequences. step_program.hpp has the list of the ops. Differences between
// architectures are data in ModelConfig: biases, norms of heads and after attention and
// feed-forward, activation, scales, soft-caps, windows, RoPE of some layers.
class Graph {
  public:
    Graph(Executor &executor, ModelWeights &weights, const GraphOptions &options);

    // Queues one step over the tokens of all segments. It does not submit the ops. next().logits()
    // has the logits of all segments, one segment after the other. `together`: see
    // SegmentAttention. Throws Error(internal) for more tokens or logits than were planned.
    void forward(std::span<const Segment> segments, const CachesTogether &together = {});
    void forward(const Segment &segment) { forward({&segment, 1}); }
    // Computes the logits of `count` rows of the last step, from row `first` on, whose logits the
    // step did not compute. They replace all logits of the step, see next(). Call it before
    // anything else is queued. `count`: at most most_projected_rows().
    void project(uint32_t first, uint32_t count);
    uint32_t most_projected_rows() const { return prefill_.limits().logit_rows; }
    // Writes to `out` the residual stream after the last layer: f32 [m, hidden] for the m tokens of
    // the last step. Waits for the step. The residual stream is the input of the layers on the next
    // device, see Segment::residual.
    void read_residual(std::vector<float> &out) const;

    NextToken &next() { return next_; }
    const NextToken &next() const { return next_; }

    // Plans the ops that write these by-products. A step with a policy's tap runs them in place of
    // the plain ops. May be called at any time between steps.
    std::unique_ptr<TapOps> plan_taps(const TapForms &forms,
                                      const std::vector<bool> &untapped = {});
    const TapOps &taps() const { return *taps_; } // for GraphOptions::taps

    // Returns the ops of one form of a step, and argmax.
    std::vector<const PlannedOp *> ops(StepForm form) const;
    uint32_t max_tokens() const { return options_.max_tokens; } // of one sequence in a step
    // The most tokens of all sequences in a step: a chunk of a prompt, and one token of each other
    // sequence.
    uint32_t max_step_tokens() const { return step_tokens(options_); }
    bool attends_together() const { return attention_.can_attend_together(); }
    // Returns true if the device runs a whole step, from its token to its logits, without waiting
    // for the host.
    bool can_run_ahead() const {
        return executor_.can_run_ahead() && decoder_.has_embedding() && decoder_.has_output();
    }
    // Returns the reason why decode steps are not recorded and submitted again. Empty if decode
    // steps are recorded.
    std::string why_not_recorded() const;

  private:
    static uint32_t step_tokens(const GraphOptions &options) {
        return options.batch > 1 ? options.max_tokens + options.batch - 1 : options.max_tokens;
    }
    const StepProgram &program(StepForm form) const;
    StepForm form_of(std::span<const Segment> segments) const;
    void gather(std::span<const Segment> segments);
    void write_input(std::span<const Segment> segments);

    Executor &executor_;
    Decoder decoder_;
    GraphOptions options_;
    Workspace workspace_;
    StepProgram decode_, prefill_, batch_;
    SegmentAttention attention_;
    std::unique_ptr<TapOps> taps_;
    NextToken next_;
    LastingViews lasting_views_;
    // Data of the last step. The memory is reused, so that a step allocates nothing.
    uint32_t tokens_ = 0;
    std::vector<RowRange> logit_rows_;
    std::vector<int32_t> scratch_;
};

} // namespace keel
