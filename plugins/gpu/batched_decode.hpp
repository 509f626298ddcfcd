// The extension keel.batched_decode/1 (ops for a batch of sequences). A "seat" is the place of one
// sequence in the block tables, lengths and positions. extensions.hpp includes this file. The
// backend's namespace must define run_batch_prepare, run_batch_append, run_batch_attention and
// plan_batch_attention. Each of these functions gets the args of the op for one sequence, and the
// list of seats. In the args, the cache view is the view of seat 0.
#pragma once

#include "gpu/ops.hpp"

namespace keel_gpu {

// Makes args for one sequence from args whose rows belong to several sequences.
template <class Args>
Args adopt_batch(const keel_host *host, const Args *theirs, const SeatZero &zero) {
    Args args = adopt_args(host, theirs);
    args.kv = zero.view();
    return args;
}

inline void check_batch_attention(const keel_host *host, const keel_attention_args &args) {
    if ((args.features & KEEL_ATTENTION_SCORES) != 0)
        refuse(host, KEEL_E_UNSUPPORTED,
               "attention: scores of several sequences at once are not supported");
    check_attention(host, args);
}

inline keel_status KEEL_CALL batch_plan(keel_ctx *ctx, const keel_qkv_args *qkv,
                                        const keel_attention_args *attention,
                                        const keel_batch_kv *kv) noexcept {
    return guarded(ctx->host, [&] {
        const SeatZero zero(ctx->host, kv, attention->q->shape[0], "batched decode");
        PlanChoice prepare, attend;
        const keel_qkv_args qkv_args = adopt_batch(ctx->host, qkv, zero);
        check_qkv_prepare(ctx->host, qkv_args);
        backend::plan_qkv_prepare(*ctx, qkv_args, prepare);
        const keel_attention_args args = adopt_batch(ctx->host, attention, zero);
        check_batch_attention(ctx->host, args);
        backend::plan_batch_attention(*ctx, args, zero.seats(), attend);
        const uint64_t bytes = prepare.scratch_bytes > attend.scratch_bytes ? prepare.scratch_bytes
                                                                            : attend.scratch_bytes;
        if (bytes != 0) backend::set_aside(*ctx, bytes);
    });
}

inline keel_status KEEL_CALL batch_qkv_prepare(keel_ctx *ctx, const keel_qkv_args *theirs,
                                               const keel_batch_kv *kv) noexcept {
    return guarded(ctx->host, [&] {
        const SeatZero zero(ctx->host, kv, theirs->k->shape[0], "qkv_prepare");
        const keel_qkv_args args = adopt_batch(ctx->host, theirs, zero);
        check_qkv_prepare(ctx->host, args);
        backend::run_batch_prepare(*ctx, args, zero.seats());
        backend::after_op(*ctx);
    });
}

inline keel_status KEEL_CALL batch_kv_append(keel_ctx *ctx, const keel_kv_append_args *theirs,
                                             const keel_batch_kv *kv) noexcept {
    return guarded(ctx->host, [&] {
        const SeatZero zero(ctx->host, kv, theirs->k->shape[0], "kv_append");
        const keel_kv_append_args args = adopt_batch(ctx->host, theirs, zero);
        check_kv_append(ctx->host, args);
        backend::run_batch_append(*ctx, args, zero.seats());
        backend::after_op(*ctx);
    });
}

inline keel_status KEEL_CALL batch_attention(keel_ctx *ctx, const keel_attention_args *theirs,
                                             const keel_batch_kv *kv) noexcept {
    return guarded(ctx->host, [&] {
        const SeatZero zero(ctx->host, kv, theirs->q->shape[0], "attention");
        const keel_attention_args args = adopt_batch(ctx->host, theirs, zero);
        check_batch_attention(ctx->host, args);
        backend::run_batch_attention(*ctx, args, zero.seats());
        backend::after_op(*ctx);
    });
}

constexpr keel_batched_decode make_batched_decode() {
    keel_batched_decode t{};
    t.h = KEEL_HEADER(keel_batched_decode);
    t.prepare = batch_plan;
    t.qkv_prepare = batch_qkv_prepare;
    t.kv_append = batch_kv_append;
    t.attention = batch_attention;
    return t;
}

} // namespace keel_gpu
