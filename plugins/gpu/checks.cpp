#include "gpu/checks.hpp"

namespace keel_gpu {
namespace {

void need_f32(const keel_host *host, const keel_tensor *t, const char *name, const char *op) {
    if (!is_f32(t)) refuse(host, KEEL_E_UNSUPPORTED, "%s: %s is missing or not f32", op, name);
}

void need_head_dim(const keel_host *host, int64_t dim, const char *op) {
    if (dim > max_head_dim)
        refuse(host, KEEL_E_UNSUPPORTED, "%s: a head has %lld elements, expected at most %u", op,
               static_cast<long long>(dim), max_head_dim);
}

void need_cache(const keel_host *host, const keel_kv_view *kv, const char *op) {
    const KvConstants c = kv_constants(host, kv, op);
    need_head_dim(host, c.k_dim, op);
    need_head_dim(host, c.v_dim, op);
}

void need_heads(const keel_host *host, const keel_tensor *q, const keel_kv_view *kv,
                const char *op) {
    if (kv->kv_heads != 0 && q->shape[1] % kv->kv_heads != 0)
        refuse(host, KEEL_E_INVALID_ARG,
               "%s: the number of heads (%lld) is not a multiple of the number of KV heads (%u)",
               op, static_cast<long long>(q->shape[1]), kv->kv_heads);
}

void need_range(const keel_host *host, int64_t begin, int64_t end, const char *op) {
    if (begin < 0 || begin > end)
        refuse(host, KEEL_E_INVALID_ARG, "%s: begin %lld and end %lld are not a valid range", op,
               static_cast<long long>(begin), static_cast<long long>(end));
}

void need_scores(const keel_host *host, const keel_scores *scores, const char *op) {
    if (scores == nullptr) refuse(host, KEEL_E_INVALID_ARG, "%s: scores are missing", op);
    if (scores->reduce_queries == KEEL_REDUCE_NONE || scores->reduce_queries > KEEL_REDUCE_MAX ||
        scores->reduce_group > KEEL_REDUCE_MAX)
        refuse(host, KEEL_E_UNSUPPORTED, "%s: unknown reductions %u and %u", op,
               scores->reduce_queries, scores->reduce_group);
    need_f32(host, scores->out, "scores.out", op);
}

void check_norm(const keel_host *host, const keel_norm_args &a, const char *op) {
    check_features(host, a.features, 0, op);
    need_f32(host, a.x, "x", op);
    need_f32(host, a.weight, "weight", op);
    need_f32(host, a.out, "out", op);
}

void check_gate(const keel_host *host, const keel_gate_args &a, uint64_t known, bool up_may_lack,
                const char *op) {
    check_features(host, a.features, known, op);
    need_f32(host, a.gate, "gate", op);
    need_f32(host, a.out, "out", op);
    if ((a.features & KEEL_GATE_INTERLEAVED) == 0 && !(up_may_lack && a.up == nullptr))
        need_f32(host, a.up, "up", op);
}

void check_elementwise(const keel_host *host, const keel_elementwise_args &a, bool two,
                       const char *op) {
    check_features(host, a.features, 0, op);
    need_f32(host, a.a, "a", op);
    need_f32(host, a.out, "out", op);
    if (two) need_f32(host, a.b, "b", op);
}

void check_move(const keel_host *host, const keel_move_args &a, const char *op) {
    check_features(host, a.features, 0, op);
    if (a.out == nullptr || keel_dtype_bytes(a.out->dtype) == 0 ||
        (a.x != nullptr && a.x->dtype != a.out->dtype))
        refuse(host, KEEL_E_UNSUPPORTED, "%s: the dtypes %s and %s are not supported together", op,
               a.x != nullptr ? keel_dtype_name(a.x->dtype) : "-",
               a.out != nullptr ? keel_dtype_name(a.out->dtype) : "-");
}

void check_rows(const keel_host *host, const keel_rows_args &a, bool values, const char *op) {
    check_features(host, a.features, 0, op);
    need_f32(host, a.x, "x", op);
    need_i32(host, a.index, "index", op);
    if (values) need_f32(host, a.values, "values", op);
}

void check_keys(const keel_host *host, const keel_keys_args &a, uint64_t known, const char *op) {
    check_features(host, a.features, known, op);
    need_cache(host, a.kv, op);
    need_f32(host, a.out, "out", op);
    if ((a.features & known & KEEL_KEYS_UNROTATED) != 0)
        rope_constants(host, a.tables, a.kv->k->shape[2], op);
    need_range(host, a.begin, a.end, op);
}

} // namespace

void check_features(const keel_host *host, uint64_t features, uint64_t known, const char *op) {
    if ((features & ~known) != 0)
        refuse(host, KEEL_E_UNSUPPORTED, "%s: unknown feature bits 0x%llx", op,
               static_cast<unsigned long long>(features & ~known));
}

WeightShape weight_in_use(const keel_host *host, const WeightShape *prepared, const keel_tensor *w,
                          const char *op) {
    if (prepared != nullptr) return *prepared;
    WeightShape shape;
    if (w == nullptr || !type_of(w->dtype, shape.type))
        refuse(host, KEEL_E_UNSUPPORTED, "%s: w is missing, or its dtype %s is not supported", op,
               w != nullptr ? keel_dtype_name(w->dtype) : "-");
    shape.rows = w->shape[0];
    shape.cols = w->shape[1];
    return shape;
}

void check_matmul(const keel_host *host, const keel_matmul_args &a) {
    check_features(host, a.features, KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE, "matmul");
    need_f32(host, a.x, "x", "matmul");
    need_f32(host, a.out, "out", "matmul");
    if ((a.features & KEEL_MATMUL_BIAS) != 0) need_f32(host, a.bias, "bias", "matmul");
}

void check_embed(const keel_host *host, const keel_embed_args &a) {
    check_features(host, a.features, 0, "embed");
    need_i32(host, a.ids, "ids", "embed");
    need_f32(host, a.out, "out", "embed");
}

void check_rms_norm(const keel_host *host, const keel_norm_args &a) {
    check_norm(host, a, "rms_norm");
}

void check_add_rms_norm(const keel_host *host, const keel_norm_args &a) {
    check_norm(host, a, "add_rms_norm");
    need_f32(host, a.residual, "residual", "add_rms_norm");
}

void check_layer_norm(const keel_host *host, const keel_norm_args &a) {
    check_norm(host, a, "layer_norm");
    if (a.bias != nullptr) need_f32(host, a.bias, "bias", "layer_norm");
}

void check_silu_mul(const keel_host *host, const keel_gate_args &a) {
    check_gate(host, a, KEEL_GATE_INTERLEAVED, false, "silu_mul");
}

void check_gelu_mul(const keel_host *host, const keel_gate_args &a) {
    check_gate(host, a, KEEL_GATE_INTERLEAVED | KEEL_GELU_TANH, true, "gelu_mul");
}

void check_add(const keel_host *host, const keel_elementwise_args &a) {
    check_elementwise(host, a, true, "add");
}

void check_add_bias(const keel_host *host, const keel_elementwise_args &a) {
    check_elementwise(host, a, true, "add_bias");
}

void check_scale(const keel_host *host, const keel_elementwise_args &a) {
    check_elementwise(host, a, false, "scale");
}

void check_scaled_add(const keel_host *host, const keel_elementwise_args &a) {
    check_elementwise(host, a, false, "scaled_add");
}

void check_softmax(const keel_host *host, const keel_move_args &a) {
    check_features(host, a.features, 0, "softmax");
    need_f32(host, a.x, "x", "softmax");
    need_f32(host, a.out, "out", "softmax");
}

void check_cast(const keel_host *host, const keel_move_args &a) {
    check_features(host, a.features, 0, "cast");
    Type from = type_f32, to = type_f32;
    const bool known = a.x != nullptr && a.out != nullptr && type_of(a.x->dtype, from) &&
                       type_of(a.out->dtype, to);
    if (!known || (is_block(from) && to != type_f32) || (is_block(to) && from != type_f32))
        refuse(host, KEEL_E_UNSUPPORTED, "cast: from %s to %s is not supported",
               a.x != nullptr ? keel_dtype_name(a.x->dtype) : "-",
               a.out != nullptr ? keel_dtype_name(a.out->dtype) : "-");
}

void check_copy(const keel_host *host, const keel_move_args &a) { check_move(host, a, "copy"); }

void check_transpose(const keel_host *host, const keel_move_args &a) {
    check_move(host, a, "transpose");
}

void check_zero(const keel_host *host, const keel_move_args &a) {
    keel_move_args only_out = a; // the op zero does not read x
    only_out.x = nullptr;
    check_move(host, only_out, "zero");
}

void check_rope(const keel_host *host, const keel_rope_args &a) {
    check_features(host, a.features, KEEL_ROPE_INVERSE, "rope");
    need_f32(host, a.x, "x", "rope");
    need_f32(host, a.out, "out", "rope");
    need_head_dim(host, a.x->shape[2], "rope");
    rope_constants(host, a.tables, a.x->shape[2], "rope");
    position_constants(host, a.positions, "rope");
}

void check_qkv_prepare(const keel_host *host, const keel_qkv_args &a) {
    constexpr const char *op = "qkv_prepare";
    check_features(host, a.features, KEEL_QKV_NORM | KEEL_QKV_UNROTATED, op);
    need_f32(host, a.q, "q", op);
    need_f32(host, a.k, "k", op);
    need_f32(host, a.v, "v", op);
    need_f32(host, a.q_out, "q_out", op);
    need_cache(host, a.kv, op);
    need_heads(host, a.q, a.kv, op);
    rope_constants(host, a.tables, a.kv->k->shape[2], op);
    position_constants(host, a.positions, op);
    if ((a.features & KEEL_QKV_NORM) != 0) {
        need_f32(host, a.q_norm, "q_norm", op);
        need_f32(host, a.k_norm, "k_norm", op);
    }
    if ((a.features & KEEL_QKV_UNROTATED) == 0) return;
    if (a.q_unrotated != nullptr) need_f32(host, a.q_unrotated, "q_unrotated", op);
    if (a.k_unrotated != nullptr) need_f32(host, a.k_unrotated, "k_unrotated", op);
}

void check_attention(const keel_host *host, const keel_attention_args &a) {
    constexpr const char *op = "attention";
    check_features(host, a.features,
                   KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW | KEEL_ATTENTION_SOFTCAP |
                       KEEL_ATTENTION_LSE | KEEL_ATTENTION_SCORES,
                   op);
    need_f32(host, a.q, "q", op);
    need_f32(host, a.out, "out", op);
    need_cache(host, a.kv, op);
    need_heads(host, a.q, a.kv, op);
    if ((a.features & KEEL_ATTENTION_WINDOW) != 0) position_constants(host, a.q_positions, op);
    if ((a.features & KEEL_ATTENTION_LSE) != 0) need_f32(host, a.lse, "lse", op);
    if ((a.features & KEEL_ATTENTION_SCORES) != 0) need_scores(host, a.scores, op);
}

void check_attention_scores(const keel_host *host, const keel_attention_scores_args &a) {
    constexpr const char *op = "attention_scores";
    check_features(host, a.features,
                   KEEL_SCORES_CAUSAL | KEEL_SCORES_RANGES | KEEL_SCORES_WEIGHTS |
                       KEEL_SCORES_LOGITS | KEEL_SCORES_SOFTCAP | KEEL_SCORES_WINDOW,
                   op);
    need_f32(host, a.q, "q", op);
    need_cache(host, a.kv, op);
    need_heads(host, a.q, a.kv, op);
    need_scores(host, a.scores, op);
    if ((a.features & KEEL_SCORES_RANGES) != 0) need_i32(host, a.ranges, "ranges", op);
    if ((a.features & KEEL_SCORES_WEIGHTS) != 0) need_f32(host, a.weights, "weights", op);
    if ((a.features & KEEL_SCORES_WINDOW) != 0) position_constants(host, a.q_positions, op);
}

void check_key_project(const keel_host *host, const keel_keys_args &a) {
    check_keys(host, a, KEEL_KEYS_UNROTATED | KEEL_KEYS_NORMS, "key_project");
    if (a.projection != nullptr) need_f32(host, a.projection, "projection", "key_project");
}

void check_key_sum(const keel_host *host, const keel_keys_args &a) {
    check_keys(host, a, KEEL_KEYS_NORMALIZED, "key_sum");
}

void check_value_norms(const keel_host *host, const keel_keys_args &a) {
    check_keys(host, a, KEEL_KEYS_L1, "value_norms");
}

void check_query_stats(const keel_host *host, const keel_query_stats_args &a) {
    check_features(host, a.features, 0, "query_stats");
    need_f32(host, a.q, "q", "query_stats");
    need_f32(host, a.sum, "sum", "query_stats");
    if (a.second != nullptr) need_f32(host, a.second, "second", "query_stats");
}

void check_kv_append(const keel_host *host, const keel_kv_append_args &a) {
    check_features(host, a.features, 0, "kv_append");
    need_f32(host, a.k, "k", "kv_append");
    need_f32(host, a.v, "v", "kv_append");
    need_cache(host, a.kv, "kv_append");
    position_constants(host, a.positions, "kv_append");
}

void check_kv_gather(const keel_host *host, const keel_kv_gather_args &a) {
    check_features(host, a.features, 0, "kv_gather");
    need_cache(host, a.from, "kv_gather");
    need_cache(host, a.to, "kv_gather");
    if (a.from->k->dtype != a.to->k->dtype || a.from->v->dtype != a.to->v->dtype ||
        a.from->k->shape[2] != a.to->k->shape[2] || a.from->v->shape[2] != a.to->v->shape[2] ||
        a.from->kv_heads != a.to->kv_heads)
        refuse(host, KEEL_E_UNSUPPORTED, "kv_gather: the two views have different rows or heads");
    need_i32(host, a.index, "index", "kv_gather");
    need_i32(host, a.count, "count", "kv_gather");
}

void check_kv_rerotate(const keel_host *host, const keel_kv_rerotate_args &a) {
    constexpr const char *op = "kv_rerotate";
    check_features(host, a.features, KEEL_REROTATE_SOURCE, op);
    need_cache(host, a.kv, op);
    need_range(host, a.begin, a.end, op);
    rope_constants(host, a.tables, a.kv->k->shape[2], op);
    need_i32(host, a.row, "row", op);
    need_i32(host, a.new_positions, "new_positions", op);
    if ((a.features & KEEL_REROTATE_SOURCE) != 0) need_f32(host, a.source, "source", op);
}

void check_argmax_rows(const keel_host *host, const keel_rows_args &a) {
    check_rows(host, a, false, "argmax_rows");
}

void check_top_k_rows(const keel_host *host, const keel_rows_args &a) {
    check_rows(host, a, true, "top_k_rows");
}

} // namespace keel_gpu
