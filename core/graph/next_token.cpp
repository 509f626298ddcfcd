#include "graph/next_token.hpp"

#include "graph/step_args.hpp"

#include <cmath>

namespace keel {

NextToken::NextToken(Executor &executor, const ModelConfig &config, const Workspace &workspace,
                     uint32_t sequences)
    : executor_(executor), config_(config), workspace_(workspace) {
    if (workspace.logits.empty()) return;
    argmax_ = plan(StepForm::decode, 1);
    if (sequences > 1) batch_argmax_ = plan(StepForm::batch, sequences);
}

OpHandle NextToken::plan(StepForm form, uint32_t n) const {
    return executor_.plan(KEEL_OP_ARGMAX_ROWS, argmax_args(logits(n), ids(n)),
                          {form, Role::argmax});
}

void NextToken::read_logits(uint32_t rows, float *out, uint32_t first) const {
    workspace_.logits.rows(first, rows).read(out);
    if (config_.logit_softcap <= 0) return;
    const auto cap = static_cast<float>(config_.logit_softcap);
    const int64_t n = int64_t{rows} * config_.vocab_size;
    for (int64_t i = 0; i < n; ++i) out[i] = cap * std::tanh(out[i] / cap);
}

void NextToken::queue_argmax(uint32_t n) {
    note_overwritten();
    executor_.run(n == 1 ? *argmax_ : *batch_argmax_, argmax_args(logits(n), ids(n)));
}

LaterRead NextToken::start_reading() const {
    const Tensor id = ids();
    return executor_.stream().start_read(id.buffer()->handle(), id.offset(), id.bytes());
}

} // namespace keel
