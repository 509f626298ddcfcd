// Appends to the cache: converts rows of K and V to the cache's dtypes and stores them with their
// positions. The ops kv_append and qkv_prepare share this code.
#pragma once

#include "cpu/ops/kv_access.hpp"

#include <initializer_list>

namespace keel_cpu {

// The positions of tokens: i32 [m] or [m, kv_heads].
struct Positions {
    const int32_t *data = nullptr;
    int64_t token = 0, head = 0; // strides in elements

    explicit Positions(const keel_tensor *t = nullptr) {
        if (t == nullptr) return;
        data = data_as<const int32_t>(t);
        token = t->rank == 2 ? outer_stride(t) : 1;
        head = t->rank == 2 ? 1 : 0;
    }
    int32_t at(int64_t i, int64_t kv_head) const { return data[i * token + kv_head * head]; }
};

// A tensor [m, heads, n] of activations: queries, keys or values.
struct Heads {
    uint8_t *data = nullptr;
    int64_t token = 0, head = 0; // strides in bytes
    int type = -1;

    explicit Heads(const keel_tensor *t = nullptr) {
        if (t == nullptr) return;
        data = data_of(t), token = t->stride[0], head = t->stride[1], type = row_type(t->dtype);
    }
    uint8_t *at(int64_t i, int64_t h) const { return data + i * token + h * head; }
};

struct KvWriter {
    const AttentionKernels *kernels = nullptr;
    KvAccess kv;
    Heads k, v;
    Positions positions;
    int64_t m = 0;
    float *rows = nullptr; // scratch memory: kRows rows of floats for each worker
    int64_t row_floats = 0;

    static constexpr int64_t kRows = 2;

    float *row(uint32_t worker) const { return rows + worker * kRows * row_floats; }
    float *second_row(uint32_t worker) const { return row(worker) + row_floats; }
    // Returns head h of token i as n f32 values. The result is the tensor's own memory if it is
    // f32, otherwise a converted copy in `room`.
    const float *f32(const Heads &x, int64_t i, int64_t h, int64_t n, float *room) const {
        if (x.type == kRowF32) return reinterpret_cast<const float *>(x.at(i, h));
        kernels->load[x.type](x.at(i, h), n, room);
        return room;
    }
    // heads() returns the number of KV heads of a token. head() returns the number in `kv` of KV
    // head h of token i. In a batch of sequences, each token belongs to its own sequence.
    int64_t heads() const { return kv.seats != nullptr ? kv.seat_heads : kv.heads; }
    int64_t head(int64_t i, int64_t h) const {
        return kv.seats != nullptr ? i * kv.seat_heads + h : h;
    }
    int64_t slot(int64_t i, int64_t h) const {
        return kv.seats != nullptr ? kv.length(head(i, h)) - 1 : kv.length(h) - m + i;
    }
    // Writes the key and the value of token i and head h to their slot. Does nothing if the slot is
    // negative.
    void append(int64_t i, int64_t h, const float *key, const float *value) const {
        const int64_t at = slot(i, h);
        if (at < 0) return;
        const int32_t *blocks = kv.blocks_of(head(i, h));
        kernels->store[kv.k.type](key, kv.k.dim, kv.row(kv.k, blocks, at));
        kernels->store[kv.v.type](value, kv.v.dim, kv.row(kv.v, blocks, at));
        kv.positions_of(head(i, h))[at] = positions.at(i, h);
    }
};

// Returns the bytes of scratch memory that a KvWriter needs. `kv` is a keel_kv_view or a
// keel_batch_kv.
template <class View> uint64_t writer_scratch(const keel_ctx *ctx, const View *kv) {
    const int64_t dim = kv->k->shape[2] > kv->v->shape[2] ? kv->k->shape[2] : kv->v->shape[2];
    return static_cast<uint64_t>(ctx->threads * KvWriter::kRows * padded(dim)) * 4;
}

inline keel_status check_rows(keel_ctx *ctx, const keel_tensor *k, const keel_tensor *v,
                              const char *op) {
    for (const keel_tensor *t : {k, v})
        if (row_type(t->dtype) < 0 || keel_dtype_block(t->dtype) != 1)
            return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: k and v must be f32, f16 or bf16", op);
    return KEEL_OK;
}

// Makes the checks that need only dtypes and shapes, so that op_plan can make them.
inline keel_status check_append(keel_ctx *ctx, const keel_tensor *k, const keel_tensor *v,
                                const keel_kv_view *kv, const char *op) {
    const keel_status status = check_kv_view(ctx, kv, op);
    return status != KEEL_OK ? status : check_rows(ctx, k, v, op);
}
inline keel_status check_append(keel_ctx *ctx, const keel_tensor *k, const keel_tensor *v,
                                const keel_batch_kv *kv, const char *op) {
    const keel_status status = check_batch_kv(ctx, kv, k->shape[0], op);
    return status != KEEL_OK ? status : check_rows(ctx, k, v, op);
}

inline keel_status open_cache(keel_ctx *ctx, const keel_kv_view *kv, int64_t, const char *op,
                              KvAccess &access) {
    return open_kv_view(ctx, kv, op, access);
}
inline keel_status open_cache(keel_ctx *ctx, const keel_batch_kv *kv, int64_t m, const char *op,
                              KvAccess &access) {
    return open_batch_kv(ctx, kv, m, op, access);
}

template <class View>
keel_status open_writer(keel_ctx *ctx, const keel_tensor *k, const keel_tensor *v,
                        const keel_tensor *positions, const View *kv, const char *op,
                        KvWriter &writer) {
    const keel_status status = open_cache(ctx, kv, k->shape[0], op, writer.kv);
    if (status != KEEL_OK) return status;
    writer.kernels = ctx->attention;
    writer.k = Heads(k), writer.v = Heads(v);
    writer.positions = Positions(positions);
    writer.m = k->shape[0];
    writer.row_floats =
        padded(writer.kv.k.dim > writer.kv.v.dim ? writer.kv.k.dim : writer.kv.v.dim);
    writer.rows = reinterpret_cast<float *>(scratch(ctx, writer_scratch(ctx, kv)));
    return writer.rows == nullptr ? KEEL_E_OUT_OF_MEMORY : KEEL_OK;
}

} // namespace keel_cpu
