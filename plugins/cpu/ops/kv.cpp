#include "cpu/ext/batched_decode.hpp"
#include "cpu/ops/kv_writer.hpp"
#include "cpu/ops/rope_tables.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

// Copies from[index[j]] to to[j] for n values. Each index[j] is at least j, so `from` and `to` can
// be the same array.
void gather_values(const uint8_t *from, uint8_t *to, const int32_t *index, int64_t n) {
    for (int64_t j = 0; j < n; ++j)
        memmove(to + j * 4, from + static_cast<int64_t>(index[j]) * 4, 4);
}

// Gathers rows of one arena. Neighbouring slots are copied together.
void gather_rows(const KvAccess &from, const KvAccess &to, const KvSide &source,
                 const KvSide &target, int64_t head, const int32_t *index, int64_t n) {
    const int32_t *from_blocks = from.blocks_of(head), *to_blocks = to.blocks_of(head);
    const bool dense =
        source.row_stride == source.row_bytes && target.row_stride == source.row_bytes;
    for (int64_t j = 0; j < n;) {
        const int64_t first = index[j];
        int64_t most = dense ? from.block_slots - (first & (from.block_slots - 1)) : 1, count = 1;
        const int64_t room = to.block_slots - (j & (to.block_slots - 1));
        most = most < room ? most : room;
        while (count < most && j + count < n && index[j + count] == first + count) ++count;
        uint8_t *out = to.row(target, to_blocks, j);
        const uint8_t *in = from.row(source, from_blocks, first);
        if (out != in) memmove(out, in, static_cast<size_t>(count * source.row_bytes));
        j += count;
    }
}

keel_status check_gather(keel_ctx *ctx, const keel_kv_gather_args *args) {
    keel_status status = check_features(ctx, args->features, 0, "kv_gather");
    if (status == KEEL_OK) status = check_kv_view(ctx, args->from, "kv_gather");
    if (status == KEEL_OK) status = check_kv_view(ctx, args->to, "kv_gather");
    if (status != KEEL_OK) return status;
    if (args->from->k->dtype != args->to->k->dtype || args->from->v->dtype != args->to->v->dtype ||
        args->from->k->shape[2] != args->to->k->shape[2] ||
        args->from->v->shape[2] != args->to->v->shape[2])
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "kv_gather: the two views have different rows");
    return KEEL_OK;
}

// Checks the index lists of all heads before any row is moved.
keel_status check_lists(keel_ctx *ctx, const keel_kv_gather_args *args, const KvAccess &from,
                        const KvAccess &to) {
    const int32_t *counts = data_as<const int32_t>(args->count);
    for (int64_t h = 0; h < to.heads; ++h) {
        const int32_t *index = data_as<const int32_t>(args->index) + h * outer_stride(args->index);
        const int64_t n = counts[h];
        if (n < 0 || n > args->index->shape[1])
            return fail(ctx->host, KEEL_E_INVALID_ARG,
                        "kv_gather: count %lld of head %lld is not in 0..%lld",
                        static_cast<long long>(n), static_cast<long long>(h),
                        static_cast<long long>(args->index->shape[1]));
        for (int64_t j = 0; j < n; ++j)
            if (index[j] < 0 || (j > 0 && index[j] <= index[j - 1]))
                return fail(
                    ctx->host, KEEL_E_INVALID_ARG,
                    "kv_gather: the index list of head %lld does not rise strictly at entry %lld",
                    static_cast<long long>(h), static_cast<long long>(j));
        keel_status status = check_slots(ctx, to, h, n, "kv_gather");
        if (status == KEEL_OK && n > 0)
            status = check_slots(ctx, from, h, index[n - 1] + 1LL, "kv_gather");
        if (status != KEEL_OK) return status;
    }
    return KEEL_OK;
}

void gather_head(const keel_kv_gather_args *args, const KvAccess &from, const KvAccess &to,
                 int64_t h) {
    const int32_t *index = data_as<const int32_t>(args->index) + h * outer_stride(args->index);
    const int64_t n = data_as<const int32_t>(args->count)[h];
    gather_rows(from, to, from.k, to.k, h, index, n);
    gather_rows(from, to, from.v, to.v, h, index, n);
    gather_values(reinterpret_cast<const uint8_t *>(from.positions + h * from.position_stride),
                  reinterpret_cast<uint8_t *>(to.positions + h * to.position_stride), index, n);
    for (uint32_t s = 0; s < args->n_sides; ++s) {
        uint8_t *side = data_of(args->sides[s]) + h * args->sides[s]->stride[0];
        gather_values(side, side, index, n);
    }
}

} // namespace

keel_status plan_kv_append(keel_ctx *ctx, const keel_kv_append_args *args,
                           PlanChoice &choice) noexcept {
    keel_status status = check_features(ctx, args->features, 0, "kv_append");
    if (status == KEEL_OK) status = check_append(ctx, args->k, args->v, args->kv, "kv_append");
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = writer_scratch(ctx, args->kv);
    name_kernel(choice, "kv_append %s/%s %s", keel_dtype_name(args->kv->k->dtype),
                keel_dtype_name(args->kv->v->dtype), ctx->attention->isa);
    return KEEL_OK;
}

namespace {

template <class View>
keel_status append(keel_ctx *ctx, const keel_kv_append_args *args, const View *kv) {
    keel_status status = check_features(ctx, args->features, 0, "kv_append");
    if (status == KEEL_OK) status = check_append(ctx, args->k, args->v, kv, "kv_append");
    KvWriter w;
    if (status == KEEL_OK)
        status = open_writer(ctx, args->k, args->v, args->positions, kv, "kv_append", w);
    if (status != KEEL_OK || w.m == 0 || w.kv.heads == 0) return status;
    const uint64_t bytes = static_cast<uint64_t>(w.m * w.heads() * (w.kv.k.dim + w.kv.v.dim)) * 4;
    return parallel(ctx, workers_for(ctx, bytes), [&w](const Team &team) {
        const Range tokens = share(w.m, 1, team);
        for (int64_t i = tokens.begin; i < tokens.end; ++i)
            for (int64_t h = 0; h < w.heads(); ++h)
                w.append(i, h, w.f32(w.k, i, h, w.kv.k.dim, w.row(team.worker)),
                         w.f32(w.v, i, h, w.kv.v.dim, w.second_row(team.worker)));
    });
}

} // namespace

keel_status KEEL_CALL op_kv_append(keel_ctx *ctx, const keel_kv_append_args *args) noexcept {
    return append(ctx, args, args->kv);
}

keel_status KEEL_CALL batch_kv_append(keel_ctx *ctx, const keel_kv_append_args *args,
                                      const keel_batch_kv *kv) noexcept {
    return append(ctx, args, kv);
}

keel_status plan_kv_gather(keel_ctx *ctx, const keel_kv_gather_args *args,
                           PlanChoice &choice) noexcept {
    name_kernel(choice, "kv_gather");
    return check_gather(ctx, args);
}

keel_status KEEL_CALL op_kv_gather(keel_ctx *ctx, const keel_kv_gather_args *args) noexcept {
    keel_status status = check_gather(ctx, args);
    KvAccess from, to;
    if (status == KEEL_OK) status = open_kv_slots(ctx, args->from, "kv_gather", from);
    if (status == KEEL_OK) status = open_kv_slots(ctx, args->to, "kv_gather", to);
    if (status == KEEL_OK) status = check_lists(ctx, args, from, to);
    if (status != KEEL_OK || to.heads == 0) return status;
    uint64_t rows = 0;
    for (int64_t h = 0; h < to.heads; ++h)
        rows += static_cast<uint64_t>(data_as<const int32_t>(args->count)[h]);
    const uint64_t bytes = rows * static_cast<uint64_t>(from.k.row_bytes + from.v.row_bytes) * 2;
    return parallel(ctx, workers_for(ctx, bytes), [&](const Team &team) {
        const Range heads = share(to.heads, 1, team);
        for (int64_t h = heads.begin; h < heads.end; ++h) gather_head(args, from, to, h);
    });
}

namespace {

struct Rerotation {
    KvAccess kv;
    const AttentionKernels *kernels;
    const keel_kv_rerotate_args *args;
    float *rows; // scratch memory, one row for each worker

    int64_t end(int64_t h) const { return args->end < kv.lengths[h] ? args->end : kv.lengths[h]; }
    const int32_t *row_of(int64_t h) const {
        return data_as<const int32_t>(args->row) + h * outer_stride(args->row);
    }

    void slot(int64_t h, int64_t j, float *key) const {
        const int32_t row = row_of(h)[j];
        if (row < 0) return;
        uint8_t *place = kv.row(kv.k, kv.blocks_of(h), j);
        const float *from = key;
        if ((args->features & KEEL_REROTATE_SOURCE) != 0)
            from = reinterpret_cast<const float *>(data_of(args->source) +
                                                   h * args->source->stride[0] +
                                                   (j - args->begin) * args->source->stride[1]);
        else
            kernels->load[kv.k.type](place, kv.k.dim, key);
        const keel_rope_tables &t = *args->tables;
        kernels->rope(from, key, kv.k.dim, t.rot, data_as<float>(t.cos) + row * outer_stride(t.cos),
                      data_as<float>(t.sin) + row * outer_stride(t.sin), 1.0f, t.mode);
        kernels->store[kv.k.type](key, kv.k.dim, place);
        kv.positions[h * kv.position_stride + j] =
            data_as<const int32_t>(args->new_positions)[h * outer_stride(args->new_positions) + j];
    }
};

keel_status check_rerotate(keel_ctx *ctx, const keel_kv_rerotate_args *args) {
    keel_status status = check_features(ctx, args->features, KEEL_REROTATE_SOURCE, "kv_rerotate");
    if (status == KEEL_OK) status = check_kv_view(ctx, args->kv, "kv_rerotate");
    if (status == KEEL_OK)
        status = check_tables(ctx, args->tables, args->kv->k->shape[2], "kv_rerotate");
    if (status == KEEL_OK) status = check_range(ctx, args->begin, args->end, "kv_rerotate");
    return status;
}

uint64_t rerotate_scratch(const keel_ctx *ctx, const keel_kv_view *kv) {
    return static_cast<uint64_t>(ctx->threads * padded(kv->k->shape[2])) * 4;
}

} // namespace

keel_status plan_kv_rerotate(keel_ctx *ctx, const keel_kv_rerotate_args *args,
                             PlanChoice &choice) noexcept {
    const keel_status status = check_rerotate(ctx, args);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = rerotate_scratch(ctx, args->kv);
    name_kernel(choice, "kv_rerotate %s %s", keel_dtype_name(args->kv->k->dtype),
                ctx->attention->isa);
    return KEEL_OK;
}

keel_status KEEL_CALL op_kv_rerotate(keel_ctx *ctx, const keel_kv_rerotate_args *args) noexcept {
    keel_status status = check_rerotate(ctx, args);
    Rerotation r = {{}, ctx->attention, args, nullptr};
    if (status == KEEL_OK) status = open_kv_view(ctx, args->kv, "kv_rerotate", r.kv);
    if (status != KEEL_OK) return status;
    int64_t slots = 0;
    for (int64_t h = 0; h < r.kv.heads; ++h)
        for (int64_t j = args->begin; j < r.end(h); ++j, ++slots)
            if (r.row_of(h)[j] >= args->tables->cos->shape[0])
                return fail(ctx->host, KEEL_E_INVALID_ARG,
                            "kv_rerotate: row %d of head %lld is outside of the RoPE tables",
                            r.row_of(h)[j], static_cast<long long>(h));
    if (slots == 0) return KEEL_OK;
    r.rows = reinterpret_cast<float *>(scratch(ctx, rerotate_scratch(ctx, args->kv)));
    if (r.rows == nullptr) return KEEL_E_OUT_OF_MEMORY;
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(slots * r.kv.k.dim) * 8),
                    [&r](const Team &team) {
                        for (int64_t h = 0; h < r.kv.heads; ++h) {
                            const Range part = share(r.end(h) - r.args->begin, 1, team);
                            for (int64_t j = part.begin; j < part.end; ++j)
                                r.slot(h, r.args->begin + j,
                                       r.rows + team.worker * padded(r.kv.k.dim));
                        }
                    });
}

} // namespace keel_cpu
