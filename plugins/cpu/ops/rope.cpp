#include "cpu/ext/batched_decode.hpp"
#include "cpu/ops/kv_writer.hpp"
#include "cpu/ops/rope_tables.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

bool plain(const keel_tensor *t) {
    return row_type(t->dtype) >= 0 && keel_dtype_block(t->dtype) == 1;
}

keel_status check_rope(keel_ctx *ctx, const keel_rope_args *args) {
    const keel_status status = check_features(ctx, args->features, KEEL_ROPE_INVERSE, "rope");
    if (status != KEEL_OK) return status;
    if (!plain(args->x) || !plain(args->out))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "rope: x and out must be f32, f16 or bf16");
    return check_tables(ctx, args->tables, args->x->shape[2], "rope");
}

uint64_t rope_scratch(const keel_ctx *ctx, int64_t dim) {
    return static_cast<uint64_t>(ctx->threads * padded(dim)) * 4;
}

// `kv` is the view in the args, or the caches of a batch of sequences.
template <class View>
keel_status check_qkv(keel_ctx *ctx, const keel_qkv_args *args, const View *kv) {
    keel_status status =
        check_features(ctx, args->features, KEEL_QKV_NORM | KEEL_QKV_UNROTATED, "qkv_prepare");
    if (status == KEEL_OK) status = check_append(ctx, args->k, args->v, kv, "qkv_prepare");
    if (status == KEEL_OK) status = check_tables(ctx, args->tables, kv->k->shape[2], "qkv_prepare");
    if (status == KEEL_OK && (!plain(args->q) || !plain(args->q_out)))
        status = fail(ctx->host, KEEL_E_UNSUPPORTED,
                      "qkv_prepare: q and q_out must be f32, f16 or bf16");
    return status;
}

// The arguments of qkv_prepare, converted to pointers and strides.
struct Prepare {
    KvWriter writer;
    RopeTables tables;
    Heads q, q_out, q_unrotated, k_unrotated;
    const float *q_norm = nullptr, *k_norm = nullptr;
    float eps = 0;
    int64_t group = 1;

    // Processes one query or key head: normalizes it, writes a copy before rotation if the args
    // request one, and rotates it into `out`.
    void head(const float *x, const float *norm, const Heads &unrotated, int64_t i, int64_t h,
              int64_t position, float *room, float *out) const {
        const int64_t dim = writer.kv.k.dim;
        if (norm != nullptr) {
            writer.kernels->rms_norm(x, norm, eps, dim, room);
            x = room;
        }
        if (unrotated.data != nullptr) memcpy(unrotated.at(i, h), x, static_cast<size_t>(dim) * 4);
        tables.rotate(*writer.kernels, x, out, dim, position, 1.0f);
    }

    void query(int64_t i, int64_t h, int64_t position, float *room) const {
        const int64_t dim = writer.kv.k.dim;
        const float *x = writer.f32(q, i, h, dim, room);
        if (q_out.type == kRowF32) {
            head(x, q_norm, q_unrotated, i, h, position, room,
                 reinterpret_cast<float *>(q_out.at(i, h)));
            return;
        }
        head(x, q_norm, q_unrotated, i, h, position, room, room);
        writer.kernels->store[q_out.type](room, dim, q_out.at(i, h));
    }

    void token(int64_t i, uint32_t worker) const {
        float *room = writer.row(worker);
        for (int64_t h = 0; h < writer.heads(); ++h) {
            const int64_t position = writer.positions.at(i, h);
            for (int64_t g = 0; g < group; ++g) query(i, h * group + g, position, room);
            const float *key = writer.f32(writer.k, i, h, writer.kv.k.dim, room);
            head(key, k_norm, k_unrotated, i, h, position, room, room);
            writer.append(i, h, room,
                          writer.f32(writer.v, i, h, writer.kv.v.dim, writer.second_row(worker)));
        }
    }
};

} // namespace

keel_status plan_rope(keel_ctx *ctx, const keel_rope_args *args, PlanChoice &choice) noexcept {
    const keel_status status = check_rope(ctx, args);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = rope_scratch(ctx, args->x->shape[2]);
    name_kernel(choice, "rope %s", ctx->attention->isa);
    return KEEL_OK;
}

keel_status KEEL_CALL op_rope(keel_ctx *ctx, const keel_rope_args *args) noexcept {
    const keel_status status = check_rope(ctx, args);
    if (status != KEEL_OK) return status;
    const int64_t m = args->x->shape[0], heads = args->x->shape[1], dim = args->x->shape[2];
    if (m == 0 || heads == 0 || dim == 0) return KEEL_OK;
    float *rooms = reinterpret_cast<float *>(scratch(ctx, rope_scratch(ctx, dim)));
    if (rooms == nullptr) return KEEL_E_OUT_OF_MEMORY;
    const Heads x(args->x), out(args->out);
    const Positions positions(args->positions);
    const RopeTables tables(args->tables);
    const int64_t kv_heads = args->positions->rank == 2 ? args->positions->shape[1] : 1;
    if (kv_heads == 0 || heads % kv_heads != 0)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "rope: the number of heads (%lld) is not a multiple of the number of heads in "
                    "positions (%lld)",
                    static_cast<long long>(heads), static_cast<long long>(kv_heads));
    const int64_t group = heads / kv_heads;
    const float sign = (args->features & KEEL_ROPE_INVERSE) != 0 ? -1.0f : 1.0f;
    const AttentionKernels &kernels = *ctx->attention;
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(m * heads * dim) * 8),
                    [&](const Team &team) {
                        float *room = rooms + team.worker * padded(dim);
                        const Range mine = share(m * heads, 1, team);
                        for (int64_t r = mine.begin; r < mine.end; ++r) {
                            const int64_t i = r / heads, h = r % heads;
                            const float *from = reinterpret_cast<const float *>(x.at(i, h));
                            float *to = reinterpret_cast<float *>(out.at(i, h));
                            if (x.type != kRowF32)
                                kernels.load[x.type](x.at(i, h), dim, room), from = room;
                            if (out.type != kRowF32) to = room;
                            tables.rotate(kernels, from, to, dim, positions.at(i, h / group), sign);
                            if (out.type != kRowF32)
                                kernels.store[out.type](room, dim, out.at(i, h));
                        }
                    });
}

namespace {

template <class View>
keel_status plan_prepare(keel_ctx *ctx, const keel_qkv_args *args, const View *kv,
                         PlanChoice &choice) {
    const keel_status status = check_qkv(ctx, args, kv);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = writer_scratch(ctx, kv);
    name_kernel(choice, "qkv_prepare %s/%s %s", keel_dtype_name(kv->k->dtype),
                keel_dtype_name(kv->v->dtype), ctx->attention->isa);
    return KEEL_OK;
}

template <class View>
keel_status prepare(keel_ctx *ctx, const keel_qkv_args *args, const View *kv) {
    keel_status status = check_qkv(ctx, args, kv);
    Prepare p;
    if (status == KEEL_OK)
        status = open_writer(ctx, args->k, args->v, args->positions, kv, "qkv_prepare", p.writer);
    if (status != KEEL_OK || p.writer.m == 0 || p.writer.kv.heads == 0) return status;
    p.tables = RopeTables(args->tables);
    p.q = Heads(args->q), p.q_out = Heads(args->q_out);
    p.group = args->q->shape[1] / p.writer.heads();
    p.eps = args->eps;
    if ((args->features & KEEL_QKV_NORM) != 0)
        p.q_norm = data_as<const float>(args->q_norm),
        p.k_norm = data_as<const float>(args->k_norm);
    if ((args->features & KEEL_QKV_UNROTATED) != 0)
        p.q_unrotated = Heads(args->q_unrotated), p.k_unrotated = Heads(args->k_unrotated);
    const uint64_t bytes =
        static_cast<uint64_t>(p.writer.m * (args->q->shape[1] + 2 * p.writer.heads()) *
                              p.writer.kv.k.dim) *
        8;
    return parallel(ctx, workers_for(ctx, bytes), [&p](const Team &team) {
        const Range tokens = share(p.writer.m, 1, team);
        for (int64_t i = tokens.begin; i < tokens.end; ++i) p.token(i, team.worker);
    });
}

} // namespace

keel_status plan_qkv_prepare(keel_ctx *ctx, const keel_qkv_args *args,
                             PlanChoice &choice) noexcept {
    return plan_prepare(ctx, args, args->kv, choice);
}

keel_status KEEL_CALL op_qkv_prepare(keel_ctx *ctx, const keel_qkv_args *args) noexcept {
    return prepare(ctx, args, args->kv);
}

keel_status plan_batch_prepare(keel_ctx *ctx, const keel_qkv_args *args, const keel_batch_kv *kv,
                               PlanChoice &choice) noexcept {
    return plan_prepare(ctx, args, kv, choice);
}

keel_status KEEL_CALL batch_qkv_prepare(keel_ctx *ctx, const keel_qkv_args *args,
                                        const keel_batch_kv *kv) noexcept {
    return prepare(ctx, args, kv);
}

} // namespace keel_cpu
