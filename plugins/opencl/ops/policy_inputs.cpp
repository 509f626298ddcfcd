// The ops attention_scores, key_project, key_sum, value_norms and query_stats.
#include "opencl/ops/attention_job.hpp"

#include <algorithm>

namespace keel_opencl {
namespace {

cl_kernel kernel(keel_ctx &ctx, const char *name, Form form, uint32_t dim) {
    return ctx.kernels->get(Source::policy_inputs, name,
                            {{"LANES", lanes_of(form)}, {"MAX_DIM", dim_class(dim)}});
}

void build(keel_ctx &ctx, PlanChoice &choice, const char *op, uint32_t dim) {
    if (!choice.named) return;
    const Form form = ctx.form;
    kernel(ctx, op, form, dim); // the kernel has the same name as the op
    name_kernel(choice, "%s %s", op, form_name(form));
}

// Returns the largest number of slots in begin..end-1 that a head can have.
uint32_t count_of(const keel_keys_args &a, const KvConstants &c) {
    const int64_t end = std::min<int64_t>(a.end, c.max_length);
    return end > a.begin ? static_cast<uint32_t>(end - a.begin) : 0;
}

} // namespace

void plan_attention_scores(keel_ctx &ctx, const keel_attention_scores_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.q, "q");
    view_of(ctx.host, a.scores->out, "scores.out");
    choice.scratch_bytes = 8 * static_cast<uint64_t>(a.q->shape[0] * a.q->shape[1]);
    if (!choice.named) return;
    build_scores(ctx, kv_constants(ctx.host, a.kv, "attention_scores"),
                 (a.features & KEEL_SCORES_LOGITS) == 0);
    name_kernel(choice, "attention_scores %s", form_name(ctx.form));
}

void run_attention_scores(keel_ctx &ctx, const keel_attention_scores_args &a) {
    const KvConstants c = kv_constants(ctx.host, a.kv, "attention_scores");
    const View q = view_of(ctx.host, a.q, "q");
    const uint32_t m = q.shape[1], heads = q.shape[2];
    if (m == 0 || heads == 0 || c.kv_heads == 0) return;
    ScoresJob job{};
    job.view = a.kv;
    job.kv = c;
    job.q = memory_of(ctx, a.q);
    job.qv = q;
    const auto has = [&](uint64_t bit) { return (a.features & bit) != 0; };
    const bool windowed = has(KEEL_SCORES_WINDOW);
    job.rules.flags = (has(KEEL_SCORES_CAUSAL) ? uint32_t{KEEL_ATTENTION_CAUSAL} : 0U) |
                      (has(KEEL_SCORES_SOFTCAP) ? uint32_t{KEEL_ATTENTION_SOFTCAP} : 0U) |
                      (windowed ? uint32_t{KEEL_ATTENTION_WINDOW} : 0U) |
                      (has(KEEL_SCORES_RANGES) ? rule_ranges : 0U) |
                      (has(KEEL_SCORES_WEIGHTS) ? rule_weights : 0U) |
                      (has(KEEL_SCORES_LOGITS) ? rule_logits : 0U);
    job.rules.tokens = m;
    job.rules.group = heads / c.kv_heads;
    job.rules.scale = a.scale;
    job.rules.softcap = a.softcap;
    job.rules.window = window_of(a.window);
    if (windowed) job.rules.place = position_constants(ctx.host, a.q_positions, "attention_scores");
    job.q_positions = windowed ? a.q_positions : nullptr;
    job.ranges = has(KEEL_SCORES_RANGES) ? a.ranges : nullptr;
    job.weights = has(KEEL_SCORES_WEIGHTS) ? a.weights : nullptr;
    job.scores = a.scores;
    job.contributing = contributing(a.scores, m);
    job.stats = scratch(ctx, 8 * uint64_t{m} * heads);
    if (!has(KEEL_SCORES_LOGITS)) run_score_stats(ctx, job);
    run_scores(ctx, job);
}

void plan_key_project(keel_ctx &ctx, const keel_keys_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.out, "out");
    build(ctx, choice, "key_project", static_cast<uint32_t>(a.kv->k->shape[2]));
}

void run_key_project(keel_ctx &ctx, const keel_keys_args &a) {
    const KvConstants c = kv_constants(ctx.host, a.kv, "key_project");
    const uint32_t count = count_of(a, c);
    if (count == 0 || c.kv_heads == 0) return;
    const bool unrotated = (a.features & KEEL_KEYS_UNROTATED) != 0,
               norms = (a.features & KEEL_KEYS_NORMS) != 0;
    const keel_tensor *none = nullptr, *projection = norms ? nullptr : a.projection;
    const View matrix =
        projection != nullptr ? view_of(ctx.host, projection, "projection") : View{};
    if (projection != nullptr && matrix.n == 0) return;
    const RopeConstants rope = unrotated
                                   ? rope_constants(ctx.host, a.tables, c.k_dim, "key_project")
                                   : RopeConstants{1, 0, 0, 0, 0, 0, 0};
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "key_project", form, c.k_dim),
           row_grid(form, uint64_t{count} * c.kv_heads), a.kv->k, c, a.kv->block_table,
           a.kv->lengths, a.kv->positions, rope, unrotated ? a.tables->cos : none,
           unrotated ? a.tables->sin : none, projection, matrix, matrix.n,
           static_cast<uint32_t>(a.features & (KEEL_KEYS_UNROTATED | KEEL_KEYS_NORMS)),
           static_cast<uint32_t>(a.begin), count, a.out, view_of(ctx.host, a.out, "out"));
}

void plan_key_sum(keel_ctx &ctx, const keel_keys_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.out, "out");
    build(ctx, choice, "key_sum", static_cast<uint32_t>(a.kv->k->shape[2]));
}

void run_key_sum(keel_ctx &ctx, const keel_keys_args &a) {
    const KvConstants c = kv_constants(ctx.host, a.kv, "key_sum");
    if (c.kv_heads == 0 || c.k_dim == 0) return;
    const auto begin = static_cast<uint32_t>(std::min<int64_t>(a.begin, c.max_length));
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "key_sum", form, c.k_dim), row_grid(form, c.kv_heads), a.kv->k, c,
           a.kv->block_table, a.kv->lengths,
           static_cast<uint32_t>(a.features & KEEL_KEYS_NORMALIZED), begin, begin + count_of(a, c),
           a.out, view_of(ctx.host, a.out, "out"));
}

void plan_value_norms(keel_ctx &ctx, const keel_keys_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.out, "out");
    build(ctx, choice, "value_norms", 128);
}

void run_value_norms(keel_ctx &ctx, const keel_keys_args &a) {
    const KvConstants c = kv_constants(ctx.host, a.kv, "value_norms");
    const uint32_t count = count_of(a, c);
    if (count == 0 || c.kv_heads == 0) return;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "value_norms", form, 128), row_grid(form, uint64_t{count} * c.kv_heads),
           a.kv->v, c, a.kv->block_table, a.kv->lengths,
           static_cast<uint32_t>(a.features & KEEL_KEYS_L1), static_cast<uint32_t>(a.begin), count,
           a.out, view_of(ctx.host, a.out, "out"));
}

void plan_query_stats(keel_ctx &ctx, const keel_query_stats_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.q, "q");
    view_of(ctx.host, a.sum, "sum");
    if (a.second != nullptr) view_of(ctx.host, a.second, "second");
    build(ctx, choice, "query_stats", 128);
}

void run_query_stats(keel_ctx &ctx, const keel_query_stats_args &a) {
    const View q = view_of(ctx.host, a.q, "q");
    if (q.rows() == 0 || q.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "query_stats", form, 128), row_grid(form, uint64_t{q.shape[2]} * q.n),
           a.q, q, a.sum, view_of(ctx.host, a.sum, "sum"), a.second,
           a.second != nullptr ? view_of(ctx.host, a.second, "second") : View{},
           a.second != nullptr ? 1U : 0U);
}

} // namespace keel_opencl
