#include "cpu/attention/job.hpp"
#include "cpu/ext/batched_decode.hpp"

namespace keel_cpu {
namespace {

constexpr uint64_t kAttentionBits = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW |
                                    KEEL_ATTENTION_SOFTCAP | KEEL_ATTENTION_LSE |
                                    KEEL_ATTENTION_SCORES;

int64_t group_of(const keel_tensor *q, uint32_t kv_heads) {
    return kv_heads == 0 ? 0 : q->shape[1] / kv_heads;
}

// These checks run in op_plan and in the call. They use only dtypes and shapes and read no buffer.
keel_status check_queries(keel_ctx *ctx, const keel_attention_args *args, uint32_t kv_heads) {
    if (!is_activation(args->q) || !is_activation(args->out))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "attention: q and out must be f32, f16 or bf16");
    if (kv_heads != 0 && args->q->shape[1] % kv_heads != 0)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "attention: the number of heads (%lld) is not a multiple of the number of KV "
                    "heads (%u)",
                    static_cast<long long>(args->q->shape[1]), kv_heads);
    return KEEL_OK;
}

keel_status check(keel_ctx *ctx, const keel_attention_args *args) {
    keel_status status = check_features(ctx, args->features, kAttentionBits, "attention");
    if (status == KEEL_OK) status = check_kv_view(ctx, args->kv, "attention");
    if (status == KEEL_OK && (args->features & KEEL_ATTENTION_SCORES) != 0)
        status = check_scores(ctx, args->scores, "attention");
    return status != KEEL_OK ? status : check_queries(ctx, args, args->kv->kv_heads);
}

keel_status check_batch(keel_ctx *ctx, const keel_attention_args *args, const keel_batch_kv *kv) {
    keel_status status = check_features(
        ctx, args->features, kAttentionBits & ~uint64_t{KEEL_ATTENTION_SCORES}, "attention");
    if (status == KEEL_OK) status = check_batch_kv(ctx, kv, args->q->shape[0], "attention");
    return status != KEEL_OK ? status : check_queries(ctx, args, kv->kv_heads);
}

// Sets all members of the job except queries and cache.
void set_results(AttentionJob &job, const keel_attention_args *args) {
    job.out = data_of(args->out);
    job.out_token = args->out->stride[0];
    job.out_head = args->out->stride[1];
    job.out_type = row_type(args->out->dtype);
    job.scale = args->scale;
    job.causal = (args->features & KEEL_ATTENTION_CAUSAL) != 0;
    if ((args->features & KEEL_ATTENTION_SOFTCAP) != 0) job.cap = args->softcap;
    if ((args->features & KEEL_ATTENTION_WINDOW) != 0)
        set_window(job, args->q_positions, args->window);
    if ((args->features & KEEL_ATTENTION_LSE) != 0) {
        job.lse = data_as<float>(args->lse);
        job.lse_stride = outer_stride(args->lse);
    }
}

} // namespace

keel_status check_scores(keel_ctx *ctx, const keel_scores *scores, const char *op) noexcept {
    const bool known = scores->reduce_queries >= KEEL_REDUCE_SUM &&
                       scores->reduce_queries <= KEEL_REDUCE_MAX &&
                       scores->reduce_group <= KEEL_REDUCE_MAX && scores->accumulate <= 1;
    if (known && is_f32(scores->out)) return KEEL_OK;
    return fail(ctx->host, KEEL_E_UNSUPPORTED,
                "%s: unknown reduction of scores: queries %u, group %u, accumulate %u", op,
                scores->reduce_queries, scores->reduce_group, scores->accumulate);
}

int64_t contributing_queries(const keel_scores *scores, int64_t m) {
    return scores->window == 0 || scores->window > m ? m : scores->window;
}

void plan_scores(AttentionSize &size, const keel_scores &scores, Scoring scoring, uint32_t slots) {
    size.scoring = scoring;
    size.contributing = contributing_queries(&scores, size.m);
    size.slots = slots;
    size.sums = score_sums(scores, size.heads, size.group);
}

void set_queries(AttentionJob &job, const keel_tensor *q, int64_t kv_heads) {
    job.q = data_of(q);
    job.q_token = q->stride[0];
    job.q_head = q->stride[1];
    job.q_type = row_type(q->dtype);
    job.m = q->shape[0];
    job.group = q->shape[1] / kv_heads;
}

void set_window(AttentionJob &job, const keel_tensor *q_positions, int64_t window) {
    job.windowed = true;
    job.window = window;
    job.q_positions = data_as<const int32_t>(q_positions);
    job.q_position_stride = q_positions->rank == 2 ? outer_stride(q_positions) : 1;
    job.q_position_head = q_positions->rank == 2 ? 1 : 0;
}

keel_status plan_attention(keel_ctx *ctx, const keel_attention_args *args,
                           PlanChoice &choice) noexcept {
    const keel_status status = check(ctx, args);
    if (status != KEEL_OK) return status;
    const int64_t m = args->q->shape[0], heads = args->kv->kv_heads,
                  group = group_of(args->q, args->kv->kv_heads);
    const Bf16AttentionKernels *bf16 =
        bf16_of(ctx, args->kv->k->dtype, args->kv->v->dtype, args->kv->block_slots);
    AttentionSize size = {heads,       group, m, args->kv->k->shape[2], args->kv->v->shape[2],
                          ctx->threads};
    size.bf16_step = bf16 != nullptr ? bf16->rows_at_once : 0;
    size.in_bf16 = bf16 != nullptr && m * group >= bf16->least_rows;
    if ((args->features & KEEL_ATTENTION_SCORES) != 0) {
        plan_scores(size, *args->scores, scoring_of(m, group), args->kv->max_length);
    }
    choice.scratch_bytes = static_cast<uint64_t>(attention_layout(size).total) * 4;
    const bool few = m * group <= ctx->attention->few_rows;
    name_kernel(choice, "attention %s %s/%s %s%s", few ? "decode" : "prefill",
                keel_dtype_name(args->kv->k->dtype), keel_dtype_name(args->kv->v->dtype),
                size.in_bf16 ? bf16->isa : ctx->attention->isa, size.in_bf16 ? " fast" : "");
    return KEEL_OK;
}

keel_status KEEL_CALL op_attention(keel_ctx *ctx, const keel_attention_args *args) noexcept {
    keel_status status = check(ctx, args);
    if (status != KEEL_OK) return status;
    if (args->q->shape[0] == 0 || args->q->shape[1] == 0 || args->kv->kv_heads == 0) return KEEL_OK;
    AttentionJob job;
    job.kernels = ctx->attention;
    status = open_kv_view(ctx, args->kv, "attention", job.kv);
    if (status != KEEL_OK) return status;
    job.bf16 = bf16_of(ctx, args->kv->k->dtype, args->kv->v->dtype, args->kv->block_slots);
    set_queries(job, args->q, job.kv.heads);
    set_results(job, args);
    if ((args->features & KEEL_ATTENTION_SCORES) != 0) {
        job.scores = args->scores;
        job.contributing = contributing_queries(args->scores, job.m);
        job.scoring = scoring_of(job.m, job.group);
    }
    return run_attention(ctx, job);
}

keel_status plan_batch_attention(keel_ctx *ctx, const keel_attention_args *args,
                                 const keel_batch_kv *kv, PlanChoice &choice) noexcept {
    const keel_status status = check_batch(ctx, args, kv);
    if (status != KEEL_OK) return status;
    const int64_t n = args->q->shape[0];
    const Bf16AttentionKernels *bf16 = bf16_of(ctx, kv->k->dtype, kv->v->dtype, kv->block_slots);
    AttentionSize size = {
        n * kv->kv_heads, group_of(args->q, kv->kv_heads), 1, kv->k->shape[2], kv->v->shape[2],
        ctx->threads};
    size.bf16_step = bf16 != nullptr ? bf16->rows_at_once : 0;
    size.sequences = n == 0 ? 1 : n;
    choice.scratch_bytes = static_cast<uint64_t>(attention_layout(size).total) * 4;
    return KEEL_OK;
}

// The heads of all sequences are in one job, so that the workers share the tasks of all sequences.
keel_status KEEL_CALL batch_attention(keel_ctx *ctx, const keel_attention_args *args,
                                      const keel_batch_kv *kv) noexcept {
    keel_status status = check_batch(ctx, args, kv);
    if (status != KEEL_OK) return status;
    const int64_t n = args->q->shape[0];
    if (n == 0 || args->q->shape[1] == 0 || kv->kv_heads == 0) return KEEL_OK;
    AttentionJob job;
    job.kernels = ctx->attention;
    status = open_batch_kv(ctx, kv, n, "attention", job.kv);
    if (status != KEEL_OK) return status;
    job.bf16 = bf16_of(ctx, kv->k->dtype, kv->v->dtype, kv->block_slots);
    set_queries(job, args->q, kv->kv_heads);
    job.m = 1;
    set_results(job, args);
    return run_attention(ctx, job);
}

} // namespace keel_cpu
