// The op attention, for prefill and decode.
#include "vulkan/ops/attention_job.hpp"

namespace keel_vulkan {
namespace {

const keel_scores *scores_of(const keel_attention_args &a) {
    return (a.features & KEEL_ATTENTION_SCORES) != 0 ? a.scores : nullptr;
}

} // namespace

void plan_attention(keel_ctx &ctx, const keel_attention_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.q, "q"), tensor_of(ctx, a.out, "out");
    if ((a.features & KEEL_ATTENTION_LSE) != 0) tensor_of(ctx, a.lse, "lse");
    if (scores_of(a) != nullptr) tensor_of(ctx, a.scores->out, "scores.out");
    AttentionJob job;
    settle_attention(ctx, a.q, a.kv, true, scores_of(a), false, job);
    prepare_attention(ctx, job);
    choice.scratch_bytes = job.planned_bytes;
    name_kernel(choice, "attention %s/%s%s", keel_dtype_name(a.kv->k->dtype),
                keel_dtype_name(a.kv->v->dtype), job.parts > 1 ? " split" : "");
}

namespace {

void run(keel_ctx &ctx, const keel_attention_args &a, const Seats *seats) {
    AttentionJob job;
    settle_attention(ctx, a.q, a.kv, true, scores_of(a), false, job, seats);
    AttentionParams &p = job.params;
    p.q = base_of(a.q), p.q_at = rows_of(tensor_of(ctx, a.q, "q"));
    p.to = base_of(a.out), p.out_at = rows_of(tensor_of(ctx, a.out, "out"));
    p.causal = (a.features & KEEL_ATTENTION_CAUSAL) != 0;
    if ((a.features & KEEL_ATTENTION_WINDOW) != 0)
        set_window(ctx, job, a.q_positions, a.window, "attention");
    p.scale = a.scale;
    p.cap = (a.features & KEEL_ATTENTION_SOFTCAP) != 0 ? a.softcap : 0.0F;
    if ((a.features & KEEL_ATTENTION_LSE) != 0) {
        const Tensor lse = tensor_of(ctx, a.lse, "lse");
        p.lse = base_of(a.lse), p.lse_at = {lse.stride[2], 1, lse.offset};
    }
    run_attention_job(ctx, job, a.q->buffer == a.out->buffer, "attention");
}

} // namespace

void run_attention(keel_ctx &ctx, const keel_attention_args &a) { run(ctx, a, nullptr); }

void plan_batch_attention(keel_ctx &ctx, const keel_attention_args &a, const Seats &seats,
                          PlanChoice &choice) {
    tensor_of(ctx, a.q, "q"), tensor_of(ctx, a.out, "out");
    AttentionJob job;
    settle_attention(ctx, a.q, a.kv, true, nullptr, false, job, &seats);
    prepare_attention(ctx, job);
    choice.scratch_bytes = job.planned_bytes;
}

void run_batch_attention(keel_ctx &ctx, const keel_attention_args &a, const Seats &seats) {
    run(ctx, a, &seats);
}

} // namespace keel_vulkan
