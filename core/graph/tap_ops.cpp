#include "graph/tap_ops.hpp"

#include "graph/step_args.hpp"

namespace keel {

TapOps::TapOps(Executor &executor, const Decoder &decoder, const TapForms &forms, uint32_t tokens,
               const keel_kv_view *kv, const std::vector<bool> &untapped) {
    if (forms.empty()) return;
    decode_.reserve(decoder.layers());
    for (size_t i = 0; i < decoder.layers(); ++i) {
        if (!untapped.empty() && untapped[i]) {
            decode_.emplace_back();
            if (tokens > 1) prefill_.emplace_back();
            continue;
        }
        decode_.push_back(plan(executor, decoder, forms, StepForm::decode, i, 1, kv));
        if (tokens > 1)
            prefill_.push_back(plan(executor, decoder, forms, StepForm::prefill, i, tokens, kv));
    }
}

TapOps::Layer TapOps::plan(Executor &executor, const Decoder &decoder, const TapForms &forms,
                           StepForm form, size_t layer, uint32_t m, const keel_kv_view *kv) {
    const ModelConfig &c = decoder.config();
    const keel_dtype A = executor.device().info().activation_dtype;
    const Tensor qkv = Tensor::shape(A, {m, c.q_size() + 2 * c.kv_size()}),
                 out = Tensor::shape(A, {m, c.q_size()}),
                 queries = Tensor::shape(A, {m, c.heads, c.head_dim}),
                 unrotated = Tensor::shape(KEEL_DTYPE_F32, {m, c.heads, c.head_dim}),
                 sums = Tensor::shape(KEEL_DTYPE_F32, {c.kv_heads, kv->positions->shape[1]});
    keel_scores scores = {KEEL_HEADER(keel_scores)};
    scores.out = sums.c();
    scores.reduce_queries = forms.reduce_queries;
    scores.reduce_group = forms.reduce_group;
    scores.accumulate = 1;
    StepTap::Places places;
    // the queries of a step with several tokens are copied instead
    if (forms.queries && m == 1) places.queries = &queries;
    if (forms.unrotated) places.unrotated = &unrotated;
    if (forms.scores) places.scores = &scores;
    AttentionCall call(decoder, layer, qkv, out, Tensor::shape(KEEL_DTYPE_I32, {m}), kv);
    call.add(places);

    const auto tag = [&](Role role) {
        return OpTag{form, role, static_cast<int32_t>(decoder.number(layer))};
    };
    Layer ops;
    if (places.queries != nullptr || places.unrotated != nullptr)
        ops.qkv_prepare =
            executor.plan(KEEL_OP_QKV_PREPARE, call.prepare, tag(Role::tapped_qkv_prepare));
    if (places.queries != nullptr || places.scores != nullptr)
        ops.attention =
            executor.plan(KEEL_OP_ATTENTION, call.attention, tag(Role::tapped_attention));
    return ops;
}

PlannedOp *TapOps::find(StepForm form, size_t layer, Role role) const {
    const std::vector<Layer> &layers = form == StepForm::decode ? decode_ : prefill_;
    if (layers.empty()) return nullptr;
    if (role == Role::qkv_prepare) return layers[layer].qkv_prepare.get();
    return role == Role::attention ? layers[layer].attention.get() : nullptr;
}

std::vector<const PlannedOp *> TapOps::list() const {
    std::vector<const PlannedOp *> all;
    for (const auto *layers : {&decode_, &prefill_}) {
        for (const Layer &layer : *layers) {
            if (layer.qkv_prepare) all.push_back(layer.qkv_prepare.get());
            if (layer.attention) all.push_back(layer.attention.get());
        }
    }
    return all;
}

} // namespace keel
