#include "graph/step_program.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace keel {

struct StepProgram::PlanHand {
    StepProgram &program;
    Executor &executor;
    const Decoder &decoder;
    const Workspace &workspace;
    StepForm form;
    const keel_kv_view *kv;

    template <typename Args>
    void operator()(OpTag tag, keel_op op, const Args &args, Weight *weight = nullptr) {
        tag.form = form;
        program.ops_.push_back(executor.plan(op, args, tag, weight));
    }
    void attend(size_t layer) {
        const size_t first = program.ops_.size();
        program.attention_.push_back(first);
        if (form == StepForm::batch) return;
        const uint32_t m = program.limits_.tokens;
        const AttentionCall call(decoder, layer, workspace.qkv.rows(0, m),
                                 workspace.attention.rows(0, m), workspace.positions.rows(0, m),
                                 kv);
        walk_attention(decoder, layer, call, *this);
        program.attention_ops_ = program.ops_.size() - first;
    }
    void again() {}
};

StepProgram::StepProgram(Executor &executor, const Decoder &decoder, const Workspace &workspace,
                         StepForm form, const Limits &limits, const keel_kv_view *kv)
    : limits_(limits) {
    PlanHand hand{*this, executor, decoder, workspace, form, kv};
    const RowRange logits{0, limits.logit_rows};
    walk_step(decoder, workspace, limits.tokens, {&logits, decoder.has_output() ? 1U : 0U}, hand);
    const auto output = std::find_if(ops_.begin(), ops_.end(), [](const OpHandle &op) {
        return op->tag().role == Role::final_norm;
    });
    output_ = static_cast<size_t>(output - ops_.begin());
}

void StepProgram::run_output(Executor &executor, const Decoder &decoder, const Workspace &workspace,
                             const RowRange &rows) const {
    const auto no_attention = [](size_t) {};
    RunHand<decltype(no_attention)> hand{*this, executor, no_attention, output_};
    walk_output(decoder, workspace, {&rows, 1}, hand);
    check_end(hand.next, false);
}

std::vector<const PlannedOp *> StepProgram::list() const {
    std::vector<const PlannedOp *> all;
    for (const OpHandle &op : ops_) all.push_back(op.get());
    return all;
}

std::span<const OpHandle> StepProgram::attention(size_t layer) const {
    return std::span(ops_).subspan(attention_[layer], attention_ops_);
}

PlannedOp &StepProgram::op(size_t at, const OpTag &tag) const {
    if (at < ops_.size()) {
        const OpTag &own = ops_[at]->tag();
        if (own.role == tag.role && own.layer == tag.layer && own.part == tag.part)
            return *ops_[at];
    }
    throw_error(ErrorKind::internal,
                "op {} of the step is '{}', but the planned op in this place is '{}'", at,
                part_text(tag), at < ops_.size() ? ops_[at]->label() : "nothing");
}

void StepProgram::check_end(size_t at, bool without_logits) const {
    if (at == (without_logits ? output_ : ops_.size())) return;
    throw_error(ErrorKind::internal, "the step ran {} ops, but {} ops were planned", at,
                ops_.size());
}

const keel_tensor *residual_after(const ModelConfig &config, const PlannedOp &op,
                                  const keel_op_args *args) {
    switch (op.tag().role) {
    case Role::embed: return reinterpret_cast<const keel_embed_args *>(args)->out;
    case Role::ffn_add: return reinterpret_cast<const keel_elementwise_args *>(args)->out;
    case Role::down: {
        if (!adds_directly(config)) return nullptr;
        if (op.op() == KEEL_OP_EXPERT_MATMUL)
            return reinterpret_cast<const keel_expert_matmul_args *>(args)->out;
        return reinterpret_cast<const keel_matmul_args *>(args)->out;
    }
    default: return nullptr;
    }
}

} // namespace keel
