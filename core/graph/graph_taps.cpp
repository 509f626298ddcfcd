// Attention of a step, with what it leaves for a policy.
#include "graph/graph.hpp"

#include "graph/graph_args.hpp"

namespace keel {

// The queries of a step where the graph itself needs them, or where the tap wants them; then attention, with what it leaves.
void Graph::attend(LayerOps &l, size_t i, const Tensor &qkv, const Tensor &out,
                   const Tensor &positions, const keel_kv_view *kv, const StepTaps &taps) {
    const QkvViews views(qkv, config_);
    const Tensor heads = out.reshape({out.dim(0), config_.heads, config_.head_dim});
    keel_qkv_args prepare =
        qkv_args(views, positions, rope_of(i), weights_.layer(i), kv, config_.rms_norm_eps);
    keel_attention_args attention =
        attention_args(views.q, kv, heads, positions, config_, config_.window(number(i)));
    PlannedOp *prepare_op = l.qkv_prepare.get(), *attention_op = l.attention.get();
    if (taps.tap == nullptr) {
        executor_.run(*prepare_op, prepare);
        executor_.run(*attention_op, attention);
        return;
    }
    const StepTap::Places places = taps.tap->places(static_cast<uint32_t>(i));
    const auto &tapped = qkv.dim(0) == 1 ? taps.ops->decode : taps.ops->prefill;
    if (places.queries != nullptr) prepare.q_out = attention.q = places.queries->c();
    if (places.unrotated != nullptr) {
        prepare.features |= KEEL_QKV_UNROTATED;
        prepare.q_unrotated = places.unrotated->c();
    }
    if (places.scores != nullptr) {
        attention.features |= KEEL_ATTENTION_SCORES;
        attention.scores = places.scores;
    }
    if (!tapped.empty() && tapped[i].qkv_prepare &&
        (places.queries != nullptr || places.unrotated != nullptr))
        prepare_op = tapped[i].qkv_prepare.get();
    if (!tapped.empty() && tapped[i].attention &&
        (places.queries != nullptr || places.scores != nullptr))
        attention_op = tapped[i].attention.get();
    executor_.run(*prepare_op, prepare);
    executor_.run(*attention_op, attention);
    taps.tap->after_attention(static_cast<uint32_t>(i),
                              places.queries != nullptr ? *places.queries : views.q);
}

// One layer's ops that differ from the plain ones.
GraphTaps::Layer Graph::plan_tap_layer(const TapForms &forms, size_t i, uint32_t m, StepForm form) {
    const keel_dtype A = executor_.device().info().activation_dtype;
    const Tensor qkv = Tensor::shape(A, {m, config_.q_size() + 2 * config_.kv_size()});
    const QkvViews views(qkv, config_);
    const Tensor positions = positions_.rows(0, m);
    const Tensor apart = Tensor::shape(A, {m, config_.heads, config_.head_dim}),
                 unrotated = Tensor::shape(KEEL_DTYPE_F32, {m, config_.heads, config_.head_dim});
    const bool own_row = forms.queries && m == 1; // of a longer step they are copied
    GraphTaps::Layer tapped;
    if (own_row || forms.unrotated) {
        keel_qkv_args a = qkv_args(views, positions, rope_of(i), weights_.layer(i), options_.kv,
                                   config_.rms_norm_eps);
        if (own_row) a.q_out = apart.c();
        if (forms.unrotated) {
            a.features |= KEEL_QKV_UNROTATED;
            a.q_unrotated = unrotated.c();
        }
        tapped.qkv_prepare =
            executor_.plan(KEEL_OP_QKV_PREPARE, a, tag(form, Role::tapped_qkv_prepare, i));
    }
    if (!own_row && !forms.scores) return tapped;
    const Tensor sums =
        Tensor::shape(KEEL_DTYPE_F32, {config_.kv_heads, options_.kv->positions->shape[1]});
    keel_scores scores = {KEEL_HEADER(keel_scores)};
    scores.out = sums.c();
    scores.reduce_queries = forms.reduce_queries;
    scores.reduce_group = forms.reduce_group;
    scores.accumulate = 1;
    keel_attention_args a = attention_args(own_row ? apart : views.q, options_.kv, apart, positions,
                                           config_, config_.window(number(i)));
    if (forms.scores) {
        a.features |= KEEL_ATTENTION_SCORES;
        a.scores = &scores;
    }
    tapped.attention = executor_.plan(KEEL_OP_ATTENTION, a, tag(form, Role::tapped_attention, i));
    return tapped;
}

std::unique_ptr<GraphTaps> Graph::plan_taps(const TapForms &forms) {
    auto taps = std::make_unique<GraphTaps>();
    if (forms.empty()) return taps;
    for (size_t i = 0; i < static_cast<size_t>(weights_.part().count()); ++i) {
        taps->decode.push_back(plan_tap_layer(forms, i, 1, StepForm::decode));
        if (options_.max_tokens > 1)
            taps->prefill.push_back(
                plan_tap_layer(forms, i, options_.max_tokens, StepForm::prefill));
    }
    return taps;
}

std::vector<const PlannedOp *> GraphTaps::ops() const {
    std::vector<const PlannedOp *> all;
    for (const auto *layers : {&decode, &prefill}) {
        for (const Layer &layer : *layers) {
            if (layer.qkv_prepare) all.push_back(layer.qkv_prepare.get());
            if (layer.attention) all.push_back(layer.attention.get());
        }
    }
    return all;
}

} // namespace keel
