// The ops attention_scores, key_project, key_sum, value_norms and query_stats.
#include "vulkan/ops/attention_job.hpp"

namespace keel_vulkan {
namespace {

constexpr uint32_t kKeyGroup = 32, kSumGroup = 128, kStatsGroup = 32;

VkPipeline keys_pipeline(keel_ctx &ctx, const keel_kv_view *kv, bool values, bool norms) {
    const keel_tensor *arena = values ? kv->v : kv->k;
    return ctx.kernels.get(Kernel::keys,
                           {kKeyGroup, room_for(arena->shape[2], 128), values, norms});
}

VkPipeline sum_pipeline(keel_ctx &ctx) { return ctx.kernels.get(Kernel::key_sum, {kSumGroup}); }

bool has(const keel_keys_args &a, uint64_t bit) { return (a.features & bit) != 0; }

// Limits the range of slots to max_length. Returns false if the range is empty.
bool slots(const keel_keys_args &a, KeysParams &p) {
    const int64_t end = a.end < a.kv->max_length ? a.end : a.kv->max_length;
    p.begin = static_cast<uint>(a.begin < end ? a.begin : end), p.end = static_cast<uint>(end);
    return p.begin < p.end;
}

// Returns the bytes of key_sum's scratch memory, for the norms of the keys, [heads, max_length].
// Returns 0 if keys are not normalized.
uint64_t norm_bytes(const keel_keys_args &a) {
    return has(a, KEEL_KEYS_NORMALIZED)
               ? uint64_t{a.kv->kv_heads} * static_cast<uint64_t>(a.kv->max_length) * 4
               : 0;
}

void run_rows(keel_ctx &ctx, const keel_keys_args &a, bool values, bool norms, const char *op) {
    KeysParams p = {};
    p.kv = kv_of(ctx, a.kv, op);
    const Tensor out = tensor_of(ctx, a.out, "out");
    p.to = base_of(a.out);
    // Norms have one element per slot.
    p.out_at = norms ? Rows{out.stride[2], 1, out.offset} : rows_of(out);
    p.out_slots = norms ? out.n : out.shape[2];
    p.r = out.n;
    if (!values && has(a, KEEL_KEYS_UNROTATED))
        p.rope = rope_of(ctx, a.tables, a.kv->k->shape[2], op), p.rotate = 1;
    if (!norms && a.projection != nullptr) {
        const Tensor projection = tensor_of(ctx, a.projection, "projection");
        p.projection = base_of(a.projection);
        p.projection_stride = projection.stride[2], p.projection_offset = projection.offset;
    }
    p.l1 = values && has(a, KEEL_KEYS_L1);
    if (slots(a, p))
        ctx.stream.dispatch(keys_pipeline(ctx, a.kv, values, norms), p, groups(p.end - p.begin, 1),
                            a.kv->kv_heads);
}

} // namespace

void plan_attention_scores(keel_ctx &ctx, const keel_attention_scores_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.q, "q"), tensor_of(ctx, a.scores->out, "scores.out");
    if ((a.features & KEEL_SCORES_RANGES) != 0) tensor_of(ctx, a.ranges, "ranges");
    if ((a.features & KEEL_SCORES_WEIGHTS) != 0) tensor_of(ctx, a.weights, "weights");
    AttentionJob job;
    settle_attention(ctx, a.q, a.kv, false, a.scores, (a.features & KEEL_SCORES_LOGITS) != 0, job);
    prepare_attention(ctx, job);
    choice.scratch_bytes = job.planned_bytes;
    name_kernel(choice, "attention_scores %s", keel_dtype_name(a.kv->k->dtype));
}

void run_attention_scores(keel_ctx &ctx, const keel_attention_scores_args &a) {
    AttentionJob job;
    settle_attention(ctx, a.q, a.kv, false, a.scores, (a.features & KEEL_SCORES_LOGITS) != 0, job);
    AttentionParams &p = job.params;
    p.q = base_of(a.q), p.q_at = rows_of(tensor_of(ctx, a.q, "q"));
    p.causal = (a.features & KEEL_SCORES_CAUSAL) != 0;
    p.scale = a.scale;
    p.cap = (a.features & KEEL_SCORES_SOFTCAP) != 0 ? a.softcap : 0.0F;
    if ((a.features & KEEL_SCORES_WINDOW) != 0)
        set_window(ctx, job, a.q_positions, a.window, "attention_scores");
    if ((a.features & KEEL_SCORES_RANGES) != 0) {
        const Tensor ranges = tensor_of(ctx, a.ranges, "ranges");
        p.ranged = 1;
        p.ranges = base_of(a.ranges), p.ranges_stride = ranges.stride[2],
        p.ranges_offset = ranges.offset;
        p.n_ranges = ranges.shape[2];
    }
    if ((a.features & KEEL_SCORES_WEIGHTS) != 0) {
        const Tensor weights = tensor_of(ctx, a.weights, "weights");
        p.weights = base_of(a.weights), p.weights_stride = weights.stride[2],
        p.weights_offset = weights.offset;
    }
    run_attention_job(ctx, job, false, "attention_scores");
}

void plan_key_project(keel_ctx &ctx, const keel_keys_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.out, "out");
    if (a.projection != nullptr) tensor_of(ctx, a.projection, "projection");
    keys_pipeline(ctx, a.kv, false, has(a, KEEL_KEYS_NORMS));
    name_kernel(choice, "key_project %s", keel_dtype_name(a.kv->k->dtype));
}

void run_key_project(keel_ctx &ctx, const keel_keys_args &a) {
    run_rows(ctx, a, false, has(a, KEEL_KEYS_NORMS), "key_project");
}

void plan_key_sum(keel_ctx &ctx, const keel_keys_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.out, "out");
    sum_pipeline(ctx);
    if (has(a, KEEL_KEYS_NORMALIZED)) keys_pipeline(ctx, a.kv, false, true);
    choice.scratch_bytes = norm_bytes(a);
    name_kernel(choice, "key_sum %s", keel_dtype_name(a.kv->k->dtype));
}

void run_key_sum(keel_ctx &ctx, const keel_keys_args &a) {
    KeysParams p = {};
    p.kv = kv_of(ctx, a.kv, "key_sum");
    slots(a, p); // the sum over an empty range is zero
    const auto longest = static_cast<uint>(a.kv->max_length);
    const uint64_t bytes = norm_bytes(a);
    if (bytes != 0) {
        p.norms = scratch(&ctx, bytes);
        p.to = p.norms, p.out_at = {longest, 1, 0}, p.out_slots = longest;
        if (p.begin < p.end)
            ctx.stream.dispatch(keys_pipeline(ctx, a.kv, false, true), p,
                                groups(p.end - p.begin, 1), a.kv->kv_heads);
    }
    p.to = base_of(a.out), p.out_at = rows_of(tensor_of(ctx, a.out, "out"));
    p.out_slots = longest;
    ctx.stream.dispatch(sum_pipeline(ctx), p, groups(p.kv.k_dim, 16), a.kv->kv_heads);
}

void plan_value_norms(keel_ctx &ctx, const keel_keys_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.out, "out");
    keys_pipeline(ctx, a.kv, true, true);
    name_kernel(choice, "value_norms %s", keel_dtype_name(a.kv->v->dtype));
}

void run_value_norms(keel_ctx &ctx, const keel_keys_args &a) {
    run_rows(ctx, a, true, true, "value_norms");
}

void plan_query_stats(keel_ctx &ctx, const keel_query_stats_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.q, "q"), tensor_of(ctx, a.sum, "sum");
    if (a.second != nullptr) tensor_of(ctx, a.second, "second");
    ctx.kernels.get(Kernel::query_stats, {kStatsGroup});
    name_kernel(choice, "query_stats");
}

void run_query_stats(keel_ctx &ctx, const keel_query_stats_args &a) {
    StatsParams p = {};
    p.q = base_of(a.q), p.q_at = rows_of(tensor_of(ctx, a.q, "q"));
    p.sum = base_of(a.sum), p.sum_at = rows_of(tensor_of(ctx, a.sum, "sum"));
    if (a.second != nullptr)
        p.second = base_of(a.second), p.second_at = rows_of(tensor_of(ctx, a.second, "second"));
    p.m = static_cast<uint>(a.q->shape[0]), p.heads = static_cast<uint>(a.q->shape[1]);
    p.dim = static_cast<uint>(a.q->shape[2]);
    if (p.m != 0)
        ctx.stream.dispatch(ctx.kernels.get(Kernel::query_stats, {kStatsGroup}), p,
                            groups(p.dim, kStatsGroup), groups(uint64_t{p.dim} + 1, 1), p.heads);
}

} // namespace keel_vulkan
