#pragma once

#include "graph/graph.hpp"
#include "graph/weights.hpp"

namespace keel {

// The parts of a fused projection [m, q + k + v], as heads.
struct QkvViews {
    QkvViews(const Tensor &qkv, const ModelConfig &c)
        : q(qkv.columns(0, c.q_size()).reshape({qkv.dim(0), c.heads, c.head_dim})),
          k(qkv.columns(c.q_size(), c.kv_size()).reshape({qkv.dim(0), c.kv_heads, c.head_dim})),
          v(qkv.columns(c.q_size() + c.kv_size(), c.kv_size())
                .reshape({qkv.dim(0), c.kv_heads, c.head_dim})) {}
    Tensor q, k, v;
};

// Calls visit(i, part, its rows of the bias or an empty tensor, its columns of `out`) for the parts of a matrix.
template <typename Visit>
void for_each_part(RowParts &parts, const Tensor &bias, const Tensor &out, const Visit &visit) {
    if (parts.size() == 1) return visit(size_t{0}, *parts[0], bias, out);
    int64_t at = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t n = parts[i]->rows();
        visit(i, *parts[i], bias.empty() ? bias : bias.columns(at, n), out.columns(at, n));
        at += n;
    }
}

inline keel_qkv_args qkv_args(const QkvViews &views, const Tensor &positions,
                              const RopeTables &rope, const LayerWeights &w, const keel_kv_view *kv,
                              double eps) {
    keel_qkv_args a = {KEEL_HEADER(keel_qkv_args)};
    a.features = w.q_norm.empty() ? 0 : KEEL_QKV_NORM;
    a.q = views.q.c();
    a.k = views.k.c();
    a.v = views.v.c();
    a.positions = positions.c();
    a.tables = rope.c();
    a.q_norm = w.q_norm.c();
    a.k_norm = w.k_norm.c();
    a.kv = kv;
    a.q_out = views.q.c(); // in place
    a.eps = static_cast<float>(eps);
    return a;
}

inline keel_attention_args attention_args(const Tensor &q, const keel_kv_view *kv,
                                          const Tensor &out, const Tensor &positions,
                                          const ModelConfig &c, int64_t window) {
    keel_attention_args a = {KEEL_HEADER(keel_attention_args)};
    a.features = KEEL_ATTENTION_CAUSAL;
    a.q = q.c();
    a.kv = kv;
    a.out = out.c();
    a.scale = static_cast<float>(c.attention_scale());
    if (c.attention_softcap > 0) {
        a.features |= KEEL_ATTENTION_SOFTCAP;
        a.softcap = static_cast<float>(c.attention_softcap);
    }
    if (window > 0) {
        a.features |= KEEL_ATTENTION_WINDOW;
        a.window = window;
        a.q_positions = positions.c();
    }
    return a;
}

} // namespace keel
