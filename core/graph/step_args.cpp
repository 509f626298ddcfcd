#include "graph/step_args.hpp"

namespace keel {

AttentionCall::AttentionCall(const Decoder &d, size_t layer, const Tensor &qkv, const Tensor &out,
                             Tensor positions, const keel_kv_view *kv)
    : at(std::move(positions)) {
    const ModelConfig &c = d.config();
    const LayerWeights &w = d.layer(layer);
    const int64_t m = qkv.dim(0), q_size = c.q_size(), kv_size = c.kv_size();
    q = qkv.columns(0, q_size).reshape({m, c.heads, c.head_dim});
    k = qkv.columns(q_size, kv_size).reshape({m, c.kv_heads, c.head_dim});
    v = qkv.columns(q_size + kv_size, kv_size).reshape({m, c.kv_heads, c.head_dim});
    heads = out.reshape({m, c.heads, c.head_dim});

    const bool has_head_norms = c.qk_norm && !c.qk_norm_joint;
    prepare.features = has_head_norms ? KEEL_QKV_NORM : 0;
    prepare.q = q.c();
    prepare.k = k.c();
    prepare.v = v.c();
    prepare.positions = at.c();
    prepare.tables = d.rope(layer).c();
    if (has_head_norms) {
        prepare.q_norm = w.q_norm.c();
        prepare.k_norm = w.k_norm.c();
    }
    prepare.kv = kv;
    prepare.q_out = q.c();
    prepare.eps = static_cast<float>(c.rms_norm_eps);

    attention.features = KEEL_ATTENTION_CAUSAL;
    attention.q = q.c();
    attention.kv = kv;
    attention.out = heads.c();
    attention.scale = static_cast<float>(c.attention_scale());
    if (c.attention_softcap > 0) {
        attention.features |= KEEL_ATTENTION_SOFTCAP;
        attention.softcap = static_cast<float>(c.attention_softcap);
    }
    if (d.window(layer) > 0) {
        attention.features |= KEEL_ATTENTION_WINDOW;
        attention.window = d.window(layer);
        attention.q_positions = at.c();
    }
}

void AttentionCall::add(const StepTap::Places &places) {
    if (places.queries != nullptr) prepare.q_out = attention.q = places.queries->c();
    if (places.unrotated != nullptr) {
        prepare.features |= KEEL_QKV_UNROTATED;
        prepare.q_unrotated = places.unrotated->c();
    }
    if (places.scores != nullptr) {
        attention.features |= KEEL_ATTENTION_SCORES;
        attention.scores = places.scores;
    }
}

} // namespace keel
