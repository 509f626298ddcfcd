#include "cpu/ops/matmul_job.hpp"

namespace keel_cpu {
namespace {

// The most bytes of the L2 cache that x takes while weights stream through the cache.
constexpr int64_t cache_bytes = 512 << 10;
// If x has more rows than this, it is faster to unpack W into panels.
constexpr int64_t dot_rows_max = 8;
// 16-bit products: if x has more rows than this, kernels that use tiles are faster.
constexpr int64_t half_rows_max = 6;

// these kernels round x to 16-bit rows; the rows' scales are stored after them
constexpr bool is_half(Path p) { return p == Path::half_half_few || p == Path::half_half_many; }

constexpr bool is_bf16(Path p) { // these kernels take x packed and rounded to bf16
    return p == Path::any_bf16 || p == Path::half_bf16_few;
}

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

} // namespace

const char *weight_name(WeightType t) { return weight_type_names[static_cast<int>(t)]; }

const char *isa_of(const keel_ctx *ctx, const Matmul &job) {
    return is_bf16(job.path) ? ctx->matmul_bf16->isa : ctx->matmul->isa;
}

void choose_kernel(const keel_ctx *ctx, int64_t m, Matmul &job) {
    const WeightView &w = job.task.w;
    job.m = m;
    job.task.prefetch = ctx->prefetch;
    job.task.prefetch_rows = ctx->prefetch_rows;
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

void round_row(const keel_ctx *ctx, const Matmul &job, uint8_t *rounded, int64_t m,
               const float *x) {
    const int64_t k = job.task.w.cols, stride = half_stride(job);
    if (is_bf16(job.path)) {
        const int64_t together = job.path == Path::half_bf16_few ? job.m : ctx->matmul_bf16->x_rows,
                      block = together * round_up(k, 32);
        ctx->matmul_bf16->pack_x(x, k, together,
                                 reinterpret_cast<uint16_t *>(rounded) + m / together * block +
                                     m % together * 32);
    } else if (job.path == Path::quant_int8) {
        ctx->matmul->quantize(x, k, reinterpret_cast<ActBlock *>(rounded) + m * (k / 32));
    } else {
        const WeightType to = job.path == Path::half_half_many ? WeightType::bf16 : job.task.w.type;
        float *scales = reinterpret_cast<float *>(rounded + job.m * stride * 2);
        ctx->matmul->round_half(to, x, k, stride,
                                reinterpret_cast<uint16_t *>(rounded) + m * stride, scales + m);
    }
}

void use_rounded(Matmul &job, const uint8_t *rounded) {
    job.task.q = reinterpret_cast<const ActBlock *>(rounded);
    if (is_half(job.path))
        job.task.half = {reinterpret_cast<const uint16_t *>(rounded), half_stride(job),
                         reinterpret_cast<const float *>(rounded + job.m * half_stride(job) * 2)};
}

int64_t rounded_bytes(const keel_ctx *ctx, const Matmul &job) {
    if (is_bf16(job.path)) return bf16_bytes(ctx, job);
    if (job.path == Path::quant_int8) return quantized_bytes(job, job.m);
    return is_half(job.path) ? half_bytes(job, job.m) : 0;
}

int64_t worker_bytes(const keel_ctx *ctx, const Matmul &job) {
    return is_bf16(job.path)           ? ctx->matmul_bf16->worker_bytes
           : job.path == Path::any_f32 ? job.panel_bytes
                                       : 0;
}

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

void run_task(const keel_ctx *ctx, const Matmul &job, const Cut &c, int64_t task,
              const uint8_t *rounded, uint8_t *memory) {
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
            job.task, reinterpret_cast<const uint16_t *>(rounded), n0, n1, job.m);
    case Path::any_bf16:
        return ctx->matmul_bf16->matmul_any_bf16(
            job.task, reinterpret_cast<const uint16_t *>(rounded), n0, n1, m0, m1, memory);
    case Path::any_f32:
        return kernels.matmul_any_f32(job.task, n0, n1, m0, m1, reinterpret_cast<float *>(memory));
    }
}

} // namespace keel_cpu
