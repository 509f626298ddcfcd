#pragma once

#include "kv/store/layer_caches.hpp"
#include "run/sequence.hpp"

#include <span>
#include <vector>

namespace keel {

// Queues the forward passes of steps. A step has rows of one or several sequences. A row is a token
// of a prompt, or a decoded token. The class reuses its arrays, so that a decode step allocates no
// memory.
class StepRunner {
  public:
    // Queues a step with tokens of one sequence.
    void step(Sequence &sequence, std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows);
    // Queues one step with these rows on all engines that hold layers. The slots of the rows must
    // already exist. Each element of `rows` belongs to another sequence, and all sequences must
    // have the same engines. The logits have the order of `rows`. `view`: a view of the arenas that
    // the caches share. With this view, the backend can compute the attention of the first rows in
    // one call (plain_decodes). NULL: the caches share no arenas.
    void run(std::span<const SequenceRows *const> rows, LayerBatchView *view = nullptr);
    void run(const SequenceRows &rows);

  private:
    void share_residual();
    CachesTogether together(LayerBatchView &view) const;

    std::vector<float> residual_; // [tokens, hidden]: the residual stream between one engine and
                                  // the next
    std::vector<Segment> segments_;
    std::vector<const LayerCaches *> caches_;
};

} // namespace keel
