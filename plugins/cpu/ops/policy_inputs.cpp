#include "cpu/attention/job.hpp"
#include "cpu/ops/ops.hpp"
#include "cpu/ops/rope_tables.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

constexpr uint64_t kScoresBits = KEEL_SCORES_CAUSAL | KEEL_SCORES_RANGES | KEEL_SCORES_WEIGHTS |
                                 KEEL_SCORES_LOGITS | KEEL_SCORES_SOFTCAP | KEEL_SCORES_WINDOW;

keel_status check_attention_scores(keel_ctx *ctx, const keel_attention_scores_args *args) {
    keel_status status = check_features(ctx, args->features, kScoresBits, "attention_scores");
    if (status == KEEL_OK) status = check_kv_view(ctx, args->kv, "attention_scores");
    if (status == KEEL_OK) status = check_scores(ctx, args->scores, "attention_scores");
    if (status == KEEL_OK && !is_activation(args->q))
        status =
            fail(ctx->host, KEEL_E_UNSUPPORTED, "attention_scores: q must be f32, f16 or bf16");
    if (status == KEEL_OK && args->kv->kv_heads != 0 && args->q->shape[1] % args->kv->kv_heads != 0)
        status = fail(ctx->host, KEEL_E_INVALID_ARG,
                      "attention_scores: the number of heads (%lld) is not a multiple of the "
                      "number of KV heads (%u)",
                      static_cast<long long>(args->q->shape[1]), args->kv->kv_heads);
    return status;
}

Scoring scoring_of(const keel_attention_scores_args *args, int64_t group) {
    if ((args->features & KEEL_SCORES_LOGITS) != 0) return Scoring::logits;
    // Without ranges and weights, this softmax is over the same slots as the softmax of attention.
    const bool plain = (args->features & (KEEL_SCORES_RANGES | KEEL_SCORES_WEIGHTS)) == 0;
    return plain ? keel_cpu::scoring_of(args->q->shape[0], group) : Scoring::several;
}

// The job of an op that reads keys or values one tile of slots at a time: key_project, key_sum or
// value_norms.
struct KeysJob {
    KvAccess kv;
    const AttentionKernels *kernels = nullptr;
    const keel_keys_args *args = nullptr;
    RopeTables tables;
    // Scratch memory, and the projection matrix padded to whole vectors.
    float *base = nullptr, *projection = nullptr;
    int64_t r = 0, worker_floats = 0;

    bool has(uint64_t bit) const { return (args->features & bit) != 0; }
    int64_t end(int64_t h) const { return args->end < kv.lengths[h] ? args->end : kv.lengths[h]; }
    int64_t dim() const { return padded(kv.k.dim); }
    float *keys(uint32_t worker) const { return base + worker * worker_floats; }
    float *product(uint32_t worker) const { return keys(worker) + kTileSlots * dim(); }
    float *out(int64_t h, int64_t j) const {
        const keel_tensor *t = args->out;
        return reinterpret_cast<float *>(data_of(t) + h * t->stride[0] +
                                         j * (t->rank == 3 ? t->stride[1] : 4));
    }
    const float *key(int64_t h, int64_t j, float *room) const {
        kernels->load[kv.k.type](kv.row(kv.k, kv.blocks_of(h), j), kv.k.dim, room);
        if (has(KEEL_KEYS_UNROTATED))
            tables.rotate(*kernels, room, room, kv.k.dim, kv.positions[h * kv.position_stride + j],
                          -1.0f);
        return room;
    }
};

struct KeysLayout {
    int64_t worker_floats, projection_floats;
    uint64_t bytes;
};

KeysLayout keys_layout(const keel_ctx *ctx, const keel_keys_args *args) {
    const int64_t k = args->kv->k->shape[2], v = args->kv->v->shape[2];
    const int64_t dim = padded(k > v ? k : v),
                  r = args->projection != nullptr ? padded(args->projection->shape[1]) : 0;
    const int64_t one = kTileSlots * (dim + r),
                  projection = args->projection != nullptr ? padded(k) * r : 0;
    return {one, projection, static_cast<uint64_t>(ctx->threads * one + projection) * 4};
}

keel_status check_keys(keel_ctx *ctx, const keel_keys_args *args, uint64_t known, const char *op) {
    keel_status status = check_features(ctx, args->features, known, op);
    if (status == KEEL_OK) status = check_kv_view(ctx, args->kv, op);
    if (status == KEEL_OK && (args->features & known & KEEL_KEYS_UNROTATED) != 0)
        status = check_tables(ctx, args->tables, args->kv->k->shape[2], op);
    if (status == KEEL_OK) status = check_range(ctx, args->begin, args->end, op);
    return status;
}

keel_status plan_keys(keel_ctx *ctx, const keel_keys_args *args, uint64_t known, const char *op,
                      PlanChoice &choice) {
    const keel_status status = check_keys(ctx, args, known, op);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = keys_layout(ctx, args).bytes;
    name_kernel(choice, "%s %s", op, ctx->attention->isa);
    return KEEL_OK;
}

keel_status open_keys(keel_ctx *ctx, const keel_keys_args *args, uint64_t known, const char *op,
                      KeysJob &job) {
    keel_status status = check_keys(ctx, args, known, op);
    if (status == KEEL_OK) status = open_kv_view(ctx, args->kv, op, job.kv);
    if (status != KEEL_OK) return status;
    const KeysLayout layout = keys_layout(ctx, args);
    job.kernels = ctx->attention;
    job.args = args;
    job.base = reinterpret_cast<float *>(scratch(ctx, layout.bytes));
    if (job.base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    job.worker_floats = layout.worker_floats;
    job.projection = job.base + ctx->threads * layout.worker_floats;
    if (job.has(KEEL_KEYS_UNROTATED)) job.tables = RopeTables(args->tables);
    return KEEL_OK;
}

// Calls f(worker, head, first slot, number of slots) for each tile of slots. The tiles cover all
// used slots in the range begin..end-1.
template <class F>
keel_status each_tile(keel_ctx *ctx, const KeysJob &job, uint64_t flops_per_slot, F &&f) {
    int64_t slots = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        slots = job.end(h) - job.args->begin > slots ? job.end(h) - job.args->begin : slots;
    if (slots <= 0) return KEEL_OK;
    const int64_t tiles = (slots + kTileSlots - 1) / kTileSlots;
    const uint64_t work = static_cast<uint64_t>(slots * job.kv.heads) * flops_per_slot;
    return parallel(ctx, workers_for(ctx, 0, work), [&](const Team &team) {
        const Range mine = share(tiles * job.kv.heads, 1, team);
        for (int64_t t = mine.begin; t < mine.end; ++t) {
            const int64_t h = t / tiles, first = job.args->begin + t % tiles * kTileSlots,
                          left = job.end(h) - first;
            if (left > 0) f(team.worker, h, first, left < kTileSlots ? left : kTileSlots);
        }
    });
}

void pack_projection(KeysJob &job) {
    const keel_tensor *p = job.args->projection;
    const int64_t n = p->shape[1], stride = padded(n);
    job.r = stride;
    for (int64_t d = 0; d < job.kv.k.dim; ++d) {
        memcpy(job.projection + d * stride, data_of(p) + d * p->stride[0],
               static_cast<size_t>(n) * 4);
        memset(job.projection + d * stride + n, 0, static_cast<size_t>(stride - n) * 4);
    }
}

// number of terms that are summed before their sum is added to the total
constexpr int64_t kSumDepth = 32;

void project_tile(const KeysJob &job, uint32_t worker, int64_t h, int64_t first, int64_t n) {
    float *keys = job.keys(worker), *product = job.product(worker);
    for (int64_t j = 0; j < n; ++j) job.key(h, first + j, keys + j * job.dim());
    for (int64_t d = 0; d < job.kv.k.dim; d += kSumDepth) {
        const int64_t depth = job.kv.k.dim - d < kSumDepth ? job.kv.k.dim - d : kSumDepth;
        job.kernels->gemm({keys + d, job.dim(), 1}, n, job.projection + d * job.r, job.r, depth,
                          job.r, product, job.r, d != 0);
    }
    for (int64_t j = 0; j < n; ++j)
        memcpy(job.out(h, first + j), product + j * job.r,
               static_cast<size_t>(job.args->projection->shape[1]) * 4);
}

// Writes the keys of a tile, or the norms of the keys, to the result.
void copy_tile(const KeysJob &job, uint32_t worker, int64_t h, int64_t first, int64_t n) {
    for (int64_t j = first; j < first + n; ++j) {
        const float *key = job.key(h, j, job.keys(worker));
        if (job.has(KEEL_KEYS_NORMS))
            *job.out(h, j) = job.kernels->norm2(key, job.kv.k.dim);
        else
            memcpy(job.out(h, j), key, static_cast<size_t>(job.kv.k.dim) * 4);
    }
}

// Sums the keys of a head. Each tile is summed in f32. The sum of a tile is added to the total with
// Kahan summation, which corrects the total for its rounding error.
void sum_head(const KeysJob &job, uint32_t worker, int64_t h) {
    const int64_t dim = job.kv.k.dim;
    float *key = job.keys(worker), *tile = key + job.dim(), *total = tile + job.dim(),
          *lost = total + job.dim();
    memset(total, 0, static_cast<size_t>(2 * job.dim()) * 4);
    for (int64_t first = job.args->begin; first < job.end(h); first += kTileSlots) {
        memset(tile, 0, static_cast<size_t>(dim) * 4);
        for (int64_t j = first; j < first + kTileSlots && j < job.end(h); ++j) {
            job.key(h, j, key);
            const float norm = job.has(KEEL_KEYS_NORMALIZED) ? job.kernels->norm2(key, dim) : 1.0f;
            if (norm != 0) job.kernels->add_scaled(tile, key, dim, 1.0f / norm);
        }
        for (int64_t d = 0; d < dim; ++d) {
            const float x = tile[d] - lost[d], sum = total[d] + x;
            lost[d] = sum - total[d] - x;
            if (!(lost[d] - lost[d] == 0)) lost[d] = 0; // an infinite total has no rounding error
            total[d] = sum;
        }
    }
    memcpy(data_of(job.args->out) + h * job.args->out->stride[0], total,
           static_cast<size_t>(dim) * 4);
}

struct StatsLayout {
    int64_t dim, worker_floats;
    uint64_t bytes;
};

StatsLayout stats_layout(const keel_ctx *ctx, const keel_query_stats_args *args) {
    const int64_t dim = padded(args->q->shape[2]), one = 3 * kTileSlots * dim + dim * dim + dim;
    return {dim, one, static_cast<uint64_t>(ctx->threads * one) * 4};
}

keel_status check_stats(keel_ctx *ctx, const keel_query_stats_args *args) {
    const keel_status status = check_features(ctx, args->features, 0, "query_stats");
    if (status != KEEL_OK) return status;
    if (!is_f32(args->q) || !is_f32(args->sum) ||
        (args->second != nullptr && !is_f32(args->second)))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "query_stats: all tensors must be f32");
    return KEEL_OK;
}

// Computes the query statistics of one head over all tokens. `room` is scratch memory for [tile,
// dim] queries, [dim, tile] transposed queries, [dim, dim] products and [dim] sums.
void head_stats(const AttentionKernels &kernels, const keel_query_stats_args *args, int64_t h,
                int64_t dim, float *room) {
    const int64_t n = args->q->shape[2], m = args->q->shape[0];
    float *queries = room, *turned = queries + kTileSlots * dim,
          *products = turned + kTileSlots * dim, *sum = products + dim * dim;
    memset(sum, 0, static_cast<size_t>(dim) * 4);
    memset(queries, 0, static_cast<size_t>(kTileSlots * dim) * 4);
    for (int64_t first = 0; first < m; first += kTileSlots) {
        const int64_t rows = m - first < kTileSlots ? m - first : kTileSlots;
        for (int64_t i = 0; i < rows; ++i) {
            memcpy(queries + i * dim,
                   data_of(args->q) + (first + i) * args->q->stride[0] + h * args->q->stride[1],
                   static_cast<size_t>(n) * 4);
            kernels.add(sum, queries + i * dim, n);
        }
        if (args->second == nullptr) continue;
        kernels.transpose(queries, dim, padded(rows), n, turned, kTileSlots);
        kernels.gemm({turned, kTileSlots, 1}, n, queries, dim, rows, dim, products, dim,
                     first != 0);
    }
    kernels.add(reinterpret_cast<float *>(data_of(args->sum) + h * args->sum->stride[0]), sum, n);
    for (int64_t d = 0; args->second != nullptr && d < n; ++d)
        kernels.add(reinterpret_cast<float *>(data_of(args->second) + h * args->second->stride[0] +
                                              d * args->second->stride[1]),
                    products + d * dim, n);
}

} // namespace

keel_status plan_attention_scores(keel_ctx *ctx, const keel_attention_scores_args *args,
                                  PlanChoice &choice) noexcept {
    const keel_status status = check_attention_scores(ctx, args);
    if (status != KEEL_OK) return status;
    const int64_t heads = args->kv->kv_heads, group = heads == 0 ? 0 : args->q->shape[1] / heads;
    AttentionSize size = {
        heads,       group, args->q->shape[0], args->kv->k->shape[2], args->kv->v->shape[2],
        ctx->threads};
    plan_scores(size, *args->scores, scoring_of(args, group), args->kv->max_length);
    choice.scratch_bytes = static_cast<uint64_t>(attention_layout(size).total) * 4;
    name_kernel(choice, "attention_scores %s %s", keel_dtype_name(args->kv->k->dtype),
                ctx->attention->isa);
    return KEEL_OK;
}

keel_status KEEL_CALL op_attention_scores(keel_ctx *ctx,
                                          const keel_attention_scores_args *args) noexcept {
    keel_status status = check_attention_scores(ctx, args);
    if (status != KEEL_OK) return status;
    if (args->q->shape[0] == 0 || args->q->shape[1] == 0 || args->kv->kv_heads == 0) return KEEL_OK;
    AttentionJob job;
    job.kernels = ctx->attention;
    status = open_kv_view(ctx, args->kv, "attention_scores", job.kv);
    if (status != KEEL_OK) return status;
    set_queries(job, args->q, job.kv.heads);
    job.scale = args->scale;
    job.causal = (args->features & KEEL_SCORES_CAUSAL) != 0;
    if ((args->features & KEEL_SCORES_SOFTCAP) != 0) job.cap = args->softcap;
    if ((args->features & KEEL_SCORES_WINDOW) != 0)
        set_window(job, args->q_positions, args->window);
    job.scores = args->scores;
    job.contributing = contributing_queries(args->scores, job.m);
    job.scoring = scoring_of(args, job.group);
    if ((args->features & KEEL_SCORES_RANGES) != 0) {
        job.ranges = data_as<const int32_t>(args->ranges);
        job.n_ranges = args->ranges->shape[0];
        job.range_stride = outer_stride(args->ranges);
    }
    if ((args->features & KEEL_SCORES_WEIGHTS) != 0) {
        job.weights = data_as<const float>(args->weights);
        job.weight_stride = outer_stride(args->weights);
    }
    return run_attention(ctx, job);
}

keel_status plan_key_project(keel_ctx *ctx, const keel_keys_args *args,
                             PlanChoice &choice) noexcept {
    return plan_keys(ctx, args, KEEL_KEYS_UNROTATED | KEEL_KEYS_NORMS, "key_project", choice);
}

keel_status KEEL_CALL op_key_project(keel_ctx *ctx, const keel_keys_args *args) noexcept {
    KeysJob job;
    const keel_status status =
        open_keys(ctx, args, KEEL_KEYS_UNROTATED | KEEL_KEYS_NORMS, "key_project", job);
    if (status != KEEL_OK) return status;
    const bool norms = job.has(KEEL_KEYS_NORMS);
    if (norms || args->projection == nullptr)
        return each_tile(ctx, job, static_cast<uint64_t>(job.kv.k.dim) * 4,
                         [&job](uint32_t worker, int64_t h, int64_t first, int64_t n) {
                             copy_tile(job, worker, h, first, n);
                         });
    if (args->projection->shape[1] == 0) return KEEL_OK;
    pack_projection(job);
    return each_tile(ctx, job, static_cast<uint64_t>(job.kv.k.dim * (job.r + 2) * 2),
                     [&job](uint32_t worker, int64_t h, int64_t first, int64_t n) {
                         project_tile(job, worker, h, first, n);
                     });
}

keel_status plan_key_sum(keel_ctx *ctx, const keel_keys_args *args, PlanChoice &choice) noexcept {
    return plan_keys(ctx, args, KEEL_KEYS_NORMALIZED, "key_sum", choice);
}

keel_status KEEL_CALL op_key_sum(keel_ctx *ctx, const keel_keys_args *args) noexcept {
    KeysJob job;
    const keel_status status = open_keys(ctx, args, KEEL_KEYS_NORMALIZED, "key_sum", job);
    if (status != KEEL_OK || job.kv.heads == 0) return status;
    const uint64_t flops =
        static_cast<uint64_t>((args->end - args->begin) * job.kv.heads * job.kv.k.dim) * 4;
    return parallel(ctx, workers_for(ctx, 0, flops), [&job](const Team &team) {
        const Range heads = share(job.kv.heads, 1, team);
        for (int64_t h = heads.begin; h < heads.end; ++h) sum_head(job, team.worker, h);
    });
}

keel_status plan_value_norms(keel_ctx *ctx, const keel_keys_args *args,
                             PlanChoice &choice) noexcept {
    return plan_keys(ctx, args, KEEL_KEYS_L1, "value_norms", choice);
}

keel_status KEEL_CALL op_value_norms(keel_ctx *ctx, const keel_keys_args *args) noexcept {
    KeysJob job;
    const keel_status status = open_keys(ctx, args, KEEL_KEYS_L1, "value_norms", job);
    if (status != KEEL_OK) return status;
    return each_tile(
        ctx, job, static_cast<uint64_t>(job.kv.v.dim) * 4,
        [&job](uint32_t worker, int64_t h, int64_t first, int64_t n) {
            const KvSide &v = job.kv.v;
            float *row = job.keys(worker);
            for (int64_t j = first; j < first + n; ++j) {
                job.kernels->load[v.type](job.kv.row(v, job.kv.blocks_of(h), j), v.dim, row);
                *job.out(h, j) = job.has(KEEL_KEYS_L1) ? job.kernels->norm1(row, v.dim)
                                                       : job.kernels->norm2(row, v.dim);
            }
        });
}

keel_status plan_query_stats(keel_ctx *ctx, const keel_query_stats_args *args,
                             PlanChoice &choice) noexcept {
    const keel_status status = check_stats(ctx, args);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = stats_layout(ctx, args).bytes;
    name_kernel(choice, "query_stats %s", ctx->attention->isa);
    return KEEL_OK;
}

keel_status KEEL_CALL op_query_stats(keel_ctx *ctx, const keel_query_stats_args *args) noexcept {
    const keel_status status = check_stats(ctx, args);
    if (status != KEEL_OK) return status;
    const int64_t m = args->q->shape[0], heads = args->q->shape[1], n = args->q->shape[2];
    if (m == 0 || heads == 0 || n == 0) return KEEL_OK;
    const StatsLayout layout = stats_layout(ctx, args);
    float *base = reinterpret_cast<float *>(scratch(ctx, layout.bytes));
    if (base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    const uint64_t flops =
        static_cast<uint64_t>(m * heads * n * (args->second != nullptr ? 2 * n : 1));
    return parallel(ctx, workers_for(ctx, 0, flops), [&](const Team &team) {
        const Range mine = share(heads, 1, team);
        for (int64_t h = mine.begin; h < mine.end; ++h)
            head_stats(*ctx->attention, args, h, layout.dim,
                       base + team.worker * layout.worker_floats);
    });
}

} // namespace keel_cpu
