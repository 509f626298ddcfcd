#pragma once

#include "graph/decoder.hpp"
#include "graph/step_tap.hpp"

namespace keel {

// The args of a step's ops. They point to the tensors from which they are made.

inline keel_embed_args embed_args(const ModelConfig &c, const Tensor &ids, const Tensor &out) {
    keel_embed_args a = {KEEL_HEADER(keel_embed_args)};
    a.ids = ids.c();
    a.out = out.c();
    a.scale = static_cast<float>(c.embedding_scale);
    return a;
}

// Returns true if the op that computes the result of attention or feed-forward also adds it to the
// residual stream. Otherwise other ops follow: a norm, or an addition with a factor.
inline bool adds_directly(const ModelConfig &c) { return !c.post_norms && c.residual_scale == 1; }

inline keel_op norm_op(const ModelConfig &c) {
    return c.layer_norm ? KEEL_OP_LAYER_NORM : KEEL_OP_RMS_NORM;
}

inline keel_norm_args norm_args(const ModelConfig &c, const Tensor &x, const Tensor &weight,
                                const Tensor &out) {
    keel_norm_args a = {KEEL_HEADER(keel_norm_args)};
    a.x = x.c();
    a.weight = weight.c();
    a.out = out.c();
    a.eps = static_cast<float>(c.rms_norm_eps);
    return a;
}

inline keel_matmul_args matmul_args(const Tensor &x, const Tensor &bias, const Tensor &out,
                                    bool accumulate = false) {
    keel_matmul_args a = {KEEL_HEADER(keel_matmul_args)};
    a.features = (accumulate ? KEEL_MATMUL_ACCUMULATE : 0) | (bias.empty() ? 0 : KEEL_MATMUL_BIAS);
    a.x = x.c();
    a.bias = bias.c();
    a.out = out.c();
    return a;
}

// The args of a += b.
inline keel_elementwise_args add_args(const Tensor &a, const Tensor &b) {
    keel_elementwise_args e = {KEEL_HEADER(keel_elementwise_args)};
    e.a = a.c();
    e.b = b.c();
    e.out = a.c();
    return e;
}

// a += factor * b.
inline keel_elementwise_args scaled_add_args(const Tensor &a, const Tensor &b, double factor) {
    keel_elementwise_args e = {KEEL_HEADER(keel_elementwise_args)};
    e.a = b.c();
    e.out = a.c();
    e.factor = static_cast<float>(factor);
    return e;
}

// q *= factor.
inline keel_elementwise_args scale_args(const Tensor &q, double factor) {
    keel_elementwise_args e = {KEEL_HEADER(keel_elementwise_args)};
    e.a = e.out = q.c();
    e.factor = static_cast<float>(factor);
    return e;
}

inline keel_op activation_op(const ModelConfig &c) {
    return c.activation == Activation::silu ? KEEL_OP_SILU_MUL : KEEL_OP_GELU_MUL;
}

inline keel_gate_args gate_args(const ModelConfig &c, const Tensor &gate, const Tensor &up,
                                const Tensor &out) {
    keel_gate_args a = {KEEL_HEADER(keel_gate_args)};
    a.features = c.activation == Activation::gelu_tanh ? KEEL_GELU_TANH : 0;
    a.gate = gate.c();
    a.up = up.c();
    a.out = out.c();
    return a;
}

// With softmax scores.
inline keel_choose_experts_args choose_args(const Experts &e, const Tensor &logits,
                                            const Tensor &index, const Tensor &weights) {
    keel_choose_experts_args a = {KEEL_HEADER(keel_choose_experts_args)};
    a.features = e.normalize ? KEEL_CHOOSE_NORMALIZE : 0;
    a.logits = logits.c();
    a.index = index.c();
    a.weights = weights.c();
    a.scale = 1;
    return a;
}

// out = the product of each chosen expert.
inline keel_expert_matmul_args expert_args(int64_t experts, const Tensor &x, const Tensor &index,
                                           const Tensor &out) {
    keel_expert_matmul_args a = {KEEL_HEADER(keel_expert_matmul_args)};
    a.x = x.c();
    a.index = index.c();
    a.out = out.c();
    a.experts = experts;
    return a;
}

// out = the weighted sum of the products, or out += this sum.
inline keel_expert_matmul_args expert_sum_args(int64_t experts, const Tensor &x,
                                               const Tensor &index, const Tensor &weights,
                                               const Tensor &out, bool accumulate) {
    keel_expert_matmul_args a = expert_args(experts, x, index, out);
    a.features = KEEL_EXPERTS_SUM | (accumulate ? KEEL_EXPERTS_ACCUMULATE : 0);
    a.weights = weights.c();
    return a;
}

inline keel_rows_args argmax_args(const Tensor &rows, const Tensor &ids) {
    keel_rows_args a = {KEEL_HEADER(keel_rows_args)};
    a.x = rows.c();
    a.index = ids.c();
    return a;
}

// The args of the ops between the QKV projection and the output projection of a layer, for some
// rows of a step. q, k and v are columns of the fused projection; q is rotated in place.
struct AttentionCall {
    AttentionCall(const Decoder &d, size_t layer, const Tensor &qkv, const Tensor &out,
                  Tensor positions, const keel_kv_view *kv);
    AttentionCall(const AttentionCall &) = delete;
    AttentionCall &operator=(const AttentionCall &) = delete;

    // Changes the args so that the ops also write by-products to `places`.
    void add(const StepTap::Places &places);

    Tensor q, k, v, heads, at;        // `at`: the positions
    std::span<const int32_t> host_at; // the positions, if they are known; empty while planning
    keel_qkv_args prepare = {KEEL_HEADER(keel_qkv_args)};
    keel_attention_args attention = {KEEL_HEADER(keel_attention_args)};
};

} // namespace keel
