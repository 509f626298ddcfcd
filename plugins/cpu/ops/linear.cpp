// The ops matmul and embed.
#include "cpu/ops/matmul_job.hpp"
#include "cpu/ops/ops.hpp"
#include "cpu/ops/task_ranges.hpp"

#include <math.h>

namespace keel_cpu {
namespace {

constexpr int64_t passing_bytes = 4 << 20; // an `out` of this size does not stay in the L2 cache

// Decides everything except addresses. So the tensors x and out may have no buffer yet.
keel_status settle(keel_ctx *ctx, const keel_matmul_args *a, Matmul &job) {
    const keel_status known =
        check_features(ctx, a->features, KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE, "matmul");
    if (known != KEEL_OK) return known;
    if (!is_f32(a->x) || !is_f32(a->out))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "matmul: expected x and out in f32");
    if ((a->features & KEEL_MATMUL_BIAS) != 0 && !is_f32(a->bias))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "matmul: expected a bias in f32");
    WeightView &w = job.task.w;
    if (a->weight != nullptr)
        w = a->weight->view;
    else if (a->w == nullptr || !view_tensor(a->w, job.source, w))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "matmul: the dtype of w is not supported");
    job.task.accumulate = (a->features & KEEL_MATMUL_ACCUMULATE) != 0;
    job.task.x_stride = a->x->stride[0];
    job.task.out_stride = a->out->stride[0];
    choose_kernel(ctx, a->x->shape[0], job);
    job.task.pass_caches = !job.task.accumulate && job.m * w.rows >= passing_bytes / 4;
    return KEEL_OK;
}

} // namespace

keel_status plan_matmul(keel_ctx *ctx, const keel_matmul_args *a, PlanChoice &choice) noexcept {
    Matmul job;
    const keel_status status = settle(ctx, a, job);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = scratch_bytes(ctx, job);
    // If calls with fewer rows round activations, the plan's name also contains `fast`.
    name_kernel(choice, "matmul %s %s %s", weight_name(job.task.w.type), isa_of(ctx, job),
                job.may_round() ? "fast" : "exact");
    return KEEL_OK;
}

keel_status KEEL_CALL op_matmul(keel_ctx *ctx, const keel_matmul_args *a) noexcept {
    Matmul job;
    const keel_status status = settle(ctx, a, job);
    if (status != KEEL_OK || job.m == 0 || job.task.w.rows == 0) return status;
    uint8_t *memory = nullptr;
    const uint64_t bytes = scratch_bytes(ctx, job);
    if (bytes != 0 && (memory = scratch(ctx, bytes)) == nullptr) return KEEL_E_OUT_OF_MEMORY;
    job.task.x = data_as<const float>(a->x);
    job.task.out = data_as<float>(a->out);
    job.task.bias = (a->features & KEEL_MATMUL_BIAS) != 0 ? data_as<const float>(a->bias) : nullptr;
    use_rounded(job, memory);

    const Cut c = cut(ctx, job);
    const int64_t k = job.task.w.cols;
    const bool rounds = job.rounds(), round_first = rounds && job.m < 4;
    const auto round_rows = [&](const Range &rows) {
        for (int64_t m = rows.begin; m < rows.end; ++m)
            round_row(ctx, job, memory, m,
                      reinterpret_cast<const float *>(
                          reinterpret_cast<const uint8_t *>(job.task.x) + m * job.task.x_stride));
    };
    if (round_first) round_rows({0, job.m});
    const uint64_t products = static_cast<uint64_t>(job.m) *
                              static_cast<uint64_t>(job.task.w.rows) * static_cast<uint64_t>(k);
    const uint32_t workers = workers_for(ctx, 0, 2 * products);
    TaskRanges tasks(c.tasks(), workers);
    return parallel(ctx, workers, [&](const Team &team) {
        if (rounds && !round_first) {
            round_rows(share(job.m, 1, team));
            team.barrier();
        }
        uint8_t *own = memory + rounded_bytes(ctx, job) + worker_bytes(ctx, job) * team.worker;
        for (int64_t task; (task = tasks.take(team.worker)) >= 0;)
            run_task(ctx, job, c, task, memory, own);
    });
}

keel_status plan_embed(keel_ctx *ctx, const keel_embed_args *a, PlanChoice &choice) noexcept {
    const keel_status status = check_features(ctx, a->features, 0, "embed");
    if (status != KEEL_OK) return status;
    RowSource source{};
    WeightView view{};
    if (a->weight != nullptr)
        view = a->weight->view;
    else if (a->w == nullptr || !view_tensor(a->w, source, view))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "embed: the dtype of w is not supported");
    if (!is_f32(a->out) || a->ids->dtype != KEEL_DTYPE_I32)
        return fail(ctx->host, KEEL_E_UNSUPPORTED,
                    "embed: the dtype of ids or out is not supported");
    name_kernel(choice, "embed %s %s", weight_name(view.type), ctx->matmul->isa);
    return KEEL_OK;
}

keel_status KEEL_CALL op_embed(keel_ctx *ctx, const keel_embed_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_embed(ctx, a, choice);
    if (status != KEEL_OK) return status;
    RowSource source{};
    WeightView view{};
    if (a->weight != nullptr)
        view = a->weight->view;
    else
        view_tensor(a->w, source, view);
    const int64_t m = a->out->shape[0], dim = view.cols;
    if (m == 0 || dim == 0) return KEEL_OK;
    const int32_t *ids = data_as<const int32_t>(a->ids);
    uint8_t *out = data_of(a->out);
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(m * dim) * 4),
                    [&](const Team &team) {
                        const Range r = share(m, 1, team);
                        for (int64_t i = r.begin; i < r.end; ++i) {
                            float *row = reinterpret_cast<float *>(out + i * a->out->stride[0]);
                            if (ids[i] >= 0 && ids[i] < view.rows)
                                ctx->matmul->unpack_row(view, ids[i], a->scale, row);
                            else
                                for (int64_t j = 0; j < dim; ++j) row[j] = NAN;
                        }
                    });
}

} // namespace keel_cpu
