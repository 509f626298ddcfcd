#pragma once

#include "graph/workspace.hpp"
#include "ops/executor.hpp"

#include <vector>

namespace keel {

// The logits of the last step, and the tokens that argmax finds in them.
class NextToken {
  public:
    // Plans argmax for one row, and for `sequences` rows if there are several. Plans no ops if the
    // graph has no output projection.
    NextToken(Executor &executor, const ModelConfig &config, const Workspace &workspace,
              uint32_t sequences);

    // The output of the output projection, f32 [rows, vocab]: the model's logits before its
    // soft-cap.
    Tensor logits(uint32_t rows) const { return workspace_.logits.rows(0, rows); }
    // Writes to `out` the model's logits for `rows` rows, beginning with row `first`. Waits for the
    // step, reads the logits, and applies ModelConfig::logit_softcap on the host, because there is
    // no op for tanh.
    void read_logits(uint32_t rows, float *out, uint32_t first = 0) const;

    // Queues argmax over the first n rows of the logits. The tokens are in ids(n) until the next
    // step is queued.
    void queue_argmax(uint32_t n = 1);
    // The first n rows of the workspace's ids, i32 [n]. The next step can take its tokens from
    // there. So one recording serves two kinds of steps: those whose token the host wrote, and
    // those whose token argmax wrote.
    Tensor ids(uint32_t n = 1) const { return workspace_.ids.rows(0, n); }
    LaterRead start_reading() const; // starts a read of ids(1); see Stream::start_read

    // A number that changes whenever something is queued that overwrites logits or ids. While this
    // number does not change, logits and ids belong to the same step.
    uint64_t results_version() const { return version_; }
    void note_overwritten() { ++version_; }

    // NULL: the graph has no such op
    const PlannedOp *argmax() const { return argmax_.get(); }
    // NULL: the graph has no such op
    const PlannedOp *batch_argmax() const { return batch_argmax_.get(); }

  private:
    OpHandle plan(StepForm form, uint32_t n) const;

    Executor &executor_;
    const ModelConfig &config_;
    const Workspace &workspace_;
    OpHandle argmax_, batch_argmax_;
    uint64_t version_ = 0;
};

} // namespace keel
