// The ops matmul and embed.
#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"
#include "cpu/ops/task_ranges.hpp"
#include "cpu/weights/weights.hpp"

#include <math.h>

namespace keel_cpu {
namespace {

// The most bytes of the L2 cache that x takes while weights stream through the cache.
constexpr int64_t cache_bytes = 512 << 10;
// If x has more rows than this, it is faster to unpack W into panels.
constexpr int64_t dot_rows_max = 8;
// 16-bit products: if x has more rows than this, kernels that use tiles are faster.
constexpr int64_t half_rows_max = 6;
constexpr int64_t passing_bytes = 4 << 20; // an `out` of this size does not stay in the L2 cache

enum class Path {
    quant_int8,
    float_f32_few,
    half_half_few,
    half_half_many,
    half_bf16_few,
    any_bf16,
    any_f32
};

// A matmul op, the kernel that it uses, and the division of its work.
struct Matmul {
    MatmulTask task{};
    RowSource source{}; // the rows of W if W is a plain tensor and no prepared weight
    Path path = Path::any_f32;
    int64_t m = 0;
    int64_t unit = 1; // number of rows of W that the kernel handles at a time
    // sizes of areas in the scratch memory
    int64_t quantized_bytes = 0, panel_bytes = 0, half_bytes = 0, bf16_bytes = 0;
};

// these kernels round x to 16-bit rows; the rows' scales are stored after them
constexpr bool is_half(Path p) { return p == Path::half_half_few || p == Path::half_half_many; }

constexpr bool is_bf16(Path p) { // these kernels take x packed and rounded to bf16
    return p == Path::any_bf16 || p == Path::half_bf16_few;
}

const char *weight_name(WeightType t) { return weight_type_names[static_cast<int>(t)]; }

// Returns true if `types` (a bit for each weight type) has W's type, and `compute` is `fast`.
bool takes(const keel_ctx *ctx, const WeightView &w, uint32_t types) {
    return ctx->fast && w.layout == Layout::rows &&
           (types >> static_cast<uint32_t>(w.type) & 1u) != 0;
}

// Returns the smallest number of rows of x for which W is unpacked to panels of bf16. 0: never.
int64_t least_bf16_rows(const keel_ctx *ctx, const WeightView &w) {
    const bool quantized = w.type != WeightType::f16 && w.type != WeightType::bf16;
    if (!ctx->fast || ctx->matmul_bf16 == nullptr || quantized != (w.layout == Layout::interleaved))
        return 0;
    return ctx->matmul_bf16->least_rows[static_cast<int>(w.type)];
}

// Returns the number of bytes of the packed rows of x. In the scratch memory, the panels of the
// workers follow these rows.
int64_t bf16_bytes(const keel_ctx *ctx, const Matmul &job) {
    return round_up(round_up(job.m, ctx->matmul_bf16->x_rows) * round_up(job.task.w.cols, 32) * 2,
                    64);
}

int64_t quantized_bytes(const Matmul &job, int64_t m) {
    return round_up(m * (job.task.w.cols / 32) * static_cast<int64_t>(sizeof(ActBlock)), 64);
}

// x rounded to 16 bits: first all rows, then the scale of each row. half_stride() is the length of
// a row in elements. half_bytes() is the size for m rows.
int64_t half_stride(const Matmul &job) { return round_up(job.task.w.cols, 8); }
int64_t half_bytes(const Matmul &job, int64_t m) {
    return round_up(m * (half_stride(job) * 2 + 4), 64);
}

// Returns true if x is rounded to 16 bits for this weight when x has few rows.
bool takes_half_few(const keel_ctx *ctx, const WeightView &w) {
    return takes(ctx, w, ctx->matmul->half_few_types) && w.cols >= ctx->matmul->half_few_cols;
}

Path path_of(const keel_ctx *ctx, const WeightView &w, int64_t m) {
    const bool quantized = is_quantized(w.type);
    const int64_t least = least_bf16_rows(ctx, w);
    if (least != 0 && m >= least)
        return !quantized && m <= ctx->matmul_bf16->few_rows ? Path::half_bf16_few : Path::any_bf16;
    if (w.layout == Layout::interleaved && ctx->fast) return Path::quant_int8;
    if (m <= half_rows_max ? takes_half_few(ctx, w) : takes(ctx, w, ctx->matmul->half_many_types))
        return m <= half_rows_max ? Path::half_half_few : Path::half_half_many;
    return !quantized && m <= dot_rows_max ? Path::float_f32_few : Path::any_f32;
}

// Returns the number of rows of W that the kernel of `path` handles at a time.
int64_t unit_of(const keel_ctx *ctx, Path path) {
    switch (path) {
    case Path::quant_int8: return ctx->matmul->group;
    case Path::float_f32_few:
    case Path::half_half_few: return dot_unit;
    case Path::half_half_many: return half_tile_rows;
    case Path::any_bf16: return bf16_unit;
    case Path::half_bf16_few: return few_unit;
    case Path::any_f32: break;
    }
    return ctx->matmul->panel;
}

// Decides everything except addresses. So the tensors x and out need no buffer.
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
    job.m = a->x->shape[0];
    job.task.prefetch = ctx->prefetch;
    job.task.prefetch_rows = ctx->prefetch_rows;
    job.task.accumulate = (a->features & KEEL_MATMUL_ACCUMULATE) != 0;
    job.task.pass_caches = !job.task.accumulate && job.m * w.rows >= passing_bytes / 4;
    job.task.x_stride = a->x->stride[0];
    job.task.out_stride = a->out->stride[0];
    job.path = path_of(ctx, w, job.m);
    job.unit = unit_of(ctx, job.path);
    // The plan is also used for calls with smaller m, which can take another path.
    if (job.path == Path::quant_int8)
        job.quantized_bytes = quantized_bytes(job, job.m);
    else if (job.path == Path::any_bf16 && w.layout == Layout::interleaved)
        job.quantized_bytes = quantized_bytes(job, least_bf16_rows(ctx, w) - 1);
    if (is_bf16(job.path)) job.bf16_bytes = bf16_bytes(ctx, job);
    if (is_half(job.path))
        job.half_bytes = half_bytes(job, job.m);
    else if (takes_half_few(ctx, w))
        job.half_bytes = half_bytes(job, half_rows_max);
    job.panel_bytes = round_up(ctx->matmul->panel * ctx->matmul->panel_k * 4, 64);
    return KEEL_OK;
}

uint64_t scratch_bytes(const keel_ctx *ctx, const Matmul &job) {
    if (is_bf16(job.path)) {
        // bf16 kernels are used from a small number of rows on. Other paths have fewer rows and
        // usually need less scratch memory.
        const int64_t few =
            job.quantized_bytes > job.half_bytes ? job.quantized_bytes : job.half_bytes;
        const int64_t panels = job.panel_bytes * static_cast<int64_t>(ctx->threads),
                      all = job.bf16_bytes +
                            ctx->matmul_bf16->worker_bytes * static_cast<int64_t>(ctx->threads),
                      others = few > panels ? few : panels;
        return static_cast<uint64_t>(all > others ? all : others);
    }
    if (job.path == Path::quant_int8) return static_cast<uint64_t>(job.quantized_bytes);
    if (job.path == Path::float_f32_few || is_half(job.path))
        return static_cast<uint64_t>(job.half_bytes);
    const uint64_t panels = static_cast<uint64_t>(job.panel_bytes) * ctx->threads;
    return panels > static_cast<uint64_t>(job.half_bytes) ? panels
                                                          : static_cast<uint64_t>(job.half_bytes);
}

// The division of the product into tasks. Neighbouring tasks use neighbouring memory. Each worker
// takes neighbouring tasks while there are any.
struct Cut {
    int64_t n_step, m_step, n_tasks, m_tasks;
};

Cut cut(const keel_ctx *ctx, const Matmul &job) {
    const WeightView &w = job.task.w;
    Cut c{};
    c.m_step = job.m;
    if (job.path == Path::quant_int8) {
        const int64_t row = w.cols / 32 * static_cast<int64_t>(sizeof(ActBlock));
        const int64_t fit = row == 0 ? job.m : cache_bytes / row / 4 * 4;
        if (job.m > fit) c.m_step = fit < 4 ? 4 : fit;
    } else if (job.path == Path::half_half_many) {
        const int64_t row = 2 * half_stride(job),
                      fit = row == 0 ? job.m : cache_bytes / row / 8 * 8;
        if (job.m > fit) c.m_step = fit < 64 ? 64 : fit;
    } else if (job.path == Path::any_bf16 && job.m > ctx->matmul_bf16->rows_most) {
        const int64_t parts =
            (job.m + ctx->matmul_bf16->rows_most - 1) / ctx->matmul_bf16->rows_most;
        c.m_step = round_up((job.m + parts - 1) / parts, ctx->matmul_bf16->x_rows);
    } else if (job.path == Path::any_f32 && job.m > 512) {
        c.m_step = 504; // 504 is a multiple of the number of rows of every kernel's tile
    }
    const int64_t units = (w.rows + job.unit - 1) / job.unit;
    // There are about eight tasks for each worker. A task is large enough that taking it costs no
    // noticeable time.
    int64_t step = units / (8 * static_cast<int64_t>(ctx->threads));
    const int64_t unit_work = job.unit * (w.cols + 1) * (c.m_step < 8 ? 1 : c.m_step / 8);
    const int64_t least = (1 << 14) / unit_work + 1;
    if (step < least) step = least;
    // then the part of `out` that a task writes stays in the L2 cache
    if (job.path == Path::any_f32 && step > 16) step = 16;
    if (job.path == Path::any_bf16) {
        // A task has as many rows of W as possible, because x is read once for each task. Each
        // worker gets the same number of tasks.
        const int64_t workers = static_cast<int64_t>(ctx->threads),
                      most = ctx->matmul_bf16->block / bf16_unit,
                      tasks = round_up((units + most - 1) / most, workers);
        step = (units + tasks - 1) / tasks;
    }
    c.n_step = (step < 1 ? 1 : step) * job.unit;
    c.n_tasks = (w.rows + c.n_step - 1) / c.n_step;
    c.m_tasks = c.m_step == 0 ? 0 : (job.m + c.m_step - 1) / c.m_step;
    return c;
}

// Computes one task. `memory` is the scratch memory.
void run_task(const keel_ctx *ctx, const Matmul &job, const Cut &c, int64_t task, uint8_t *memory,
              uint32_t worker) {
    const MatmulKernels &kernels = *ctx->matmul;
    const int64_t m0 = task / c.n_tasks * c.m_step, n0 = task % c.n_tasks * c.n_step;
    const int64_t m1 = m0 + c.m_step < job.m ? m0 + c.m_step : job.m;
    const int64_t n1 = n0 + c.n_step < job.task.w.rows ? n0 + c.n_step : job.task.w.rows;
    switch (job.path) {
    case Path::quant_int8:
        return kernels.matmul_quant_int8(job.task, n0 / job.unit, (n1 + job.unit - 1) / job.unit,
                                         m0, m1);
    case Path::float_f32_few: return kernels.matmul_float_f32_few(job.task, n0, n1, m0, m1);
    case Path::half_half_few: return kernels.matmul_half_half_few(job.task, n0, n1, m0, m1);
    case Path::half_half_many: return kernels.matmul_half_half_many(job.task, n0, n1, m0, m1);
    case Path::half_bf16_few:
        return ctx->matmul_bf16->matmul_half_bf16_few(
            job.task, reinterpret_cast<const uint16_t *>(memory), n0, n1, job.m);
    case Path::any_bf16:
        return ctx->matmul_bf16->matmul_any_bf16(
            job.task, reinterpret_cast<const uint16_t *>(memory), n0, n1, m0, m1,
            memory + job.bf16_bytes + ctx->matmul_bf16->worker_bytes * worker);
    case Path::any_f32:
        return kernels.matmul_any_f32(job.task, n0, n1, m0, m1,
                                      reinterpret_cast<float *>(memory + job.panel_bytes * worker));
    }
}

// Rounds rows of x to the type that the path's kernel takes. `memory` is the scratch memory.
void round_rows(const keel_ctx *ctx, const Matmul &job, uint8_t *memory, Range rows) {
    const int64_t k = job.task.w.cols, stride = half_stride(job);
    for (int64_t m = rows.begin; m < rows.end; ++m) {
        const float *x = reinterpret_cast<const float *>(
            reinterpret_cast<const uint8_t *>(job.task.x) + m * job.task.x_stride);
        if (is_bf16(job.path)) {
            const int64_t together =
                              job.path == Path::half_bf16_few ? job.m : ctx->matmul_bf16->x_rows,
                          block = together * round_up(k, 32);
            ctx->matmul_bf16->pack_x(x, k, together,
                                     reinterpret_cast<uint16_t *>(memory) + m / together * block +
                                         m % together * 32);
            continue;
        }
        if (job.path == Path::quant_int8) {
            ctx->matmul->quantize(x, k, reinterpret_cast<ActBlock *>(memory) + m * (k / 32));
            continue;
        }
        const WeightType to = job.path == Path::half_half_many ? WeightType::bf16 : job.task.w.type;
        float *scales = reinterpret_cast<float *>(memory + job.m * stride * 2);
        ctx->matmul->round_half(to, x, k, stride, reinterpret_cast<uint16_t *>(memory) + m * stride,
                                scales + m);
    }
}

} // namespace

keel_status plan_matmul(keel_ctx *ctx, const keel_matmul_args *a, PlanChoice &choice) noexcept {
    Matmul job;
    const keel_status status = settle(ctx, a, job);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = scratch_bytes(ctx, job);
    // If calls with fewer rows round activations, the plan's name also contains `fast`.
    const bool bf16 = is_bf16(job.path),
               rounds = bf16 || job.path == Path::quant_int8 || job.half_bytes != 0;
    name_kernel(choice, "matmul %s %s %s", weight_name(job.task.w.type),
                bf16 ? ctx->matmul_bf16->isa : ctx->matmul->isa, rounds ? "fast" : "exact");
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
    job.task.q = reinterpret_cast<const ActBlock *>(memory);
    if (is_half(job.path))
        job.task.half = {reinterpret_cast<const uint16_t *>(memory), half_stride(job),
                         reinterpret_cast<const float *>(memory + job.m * half_stride(job) * 2)};

    const Cut c = cut(ctx, job);
    const int64_t k = job.task.w.cols;
    const bool rounds = job.path == Path::quant_int8 || is_bf16(job.path) || is_half(job.path),
               round_first = rounds && job.m < 4;
    if (round_first) round_rows(ctx, job, memory, {0, job.m});
    const uint64_t products = static_cast<uint64_t>(job.m) *
                              static_cast<uint64_t>(job.task.w.rows) * static_cast<uint64_t>(k);
    const uint32_t workers = workers_for(ctx, 0, 2 * products);
    TaskRanges tasks(c.n_tasks * c.m_tasks, workers);
    return parallel(ctx, workers, [&](const Team &team) {
        if (rounds && !round_first) {
            round_rows(ctx, job, memory, share(job.m, 1, team));
            team.barrier();
        }
        for (int64_t task; (task = tasks.take(team.worker)) >= 0;)
            run_task(ctx, job, c, task, memory, team.worker);
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
