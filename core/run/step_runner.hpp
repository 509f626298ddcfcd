#pragma once

#include "kv/store/layer_caches.hpp"
#include "run/sequence.hpp"

#include <span>
#include <vector>

namespace keel {

// Queues the forward passes of steps. A step is a list of rows: of one sequence or of several, of
// prompts or of decoded tokens. It keeps arrays from step to step, so that a decode step allocates
// nothing.
class StepRunner {
  public:
    // Takes tokens of one sequence in and queues the step.
    void step(Sequence &sequence, std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows);
    // Queues one step with these rows on all engines that hold layers. The rows' slots exist
    // already. Each element belongs to another sequence; all have the same engines. Their logits
    // follow each other in this order. `view`: a view of the arenas that the caches share; NULL:
    // the caches share no arenas.
    void run(std::span<const SequenceRows *const> rows, LayerBatchView *view = nullptr);
    void run(const SequenceRows &rows);

  private:
    void share_residual();

    std::vector<float> residual_; // [tokens, hidden]: goes from one engine to the next
    std::vector<Segment> segments_;
    std::vector<const LayerCaches *> caches_;
};

} // namespace keel
