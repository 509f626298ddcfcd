// The function table of the extension keel.batched_decode/1.
#include "cpu/ext/batched_decode.hpp"

#include <initializer_list>

namespace keel_cpu {
namespace {

keel_status KEEL_CALL prepare(keel_ctx *ctx, const keel_qkv_args *qkv,
                              const keel_attention_args *attention,
                              const keel_batch_kv *kv) noexcept {
    for (const bool attends : {false, true}) {
        PlanChoice choice;
        const keel_status status = attends ? plan_batch_attention(ctx, attention, kv, choice)
                                           : plan_batch_prepare(ctx, qkv, kv, choice);
        if (status != KEEL_OK) return status;
        if (scratch(ctx, choice.scratch_bytes) == nullptr) return KEEL_E_OUT_OF_MEMORY;
    }
    return KEEL_OK;
}

constexpr keel_batched_decode make_table() {
    keel_batched_decode t{};
    t.h = KEEL_HEADER(keel_batched_decode);
    t.prepare = prepare;
    t.qkv_prepare = batch_qkv_prepare;
    t.kv_append = batch_kv_append;
    t.attention = batch_attention;
    return t;
}

} // namespace

const keel_batched_decode batched_decode = make_table();

} // namespace keel_cpu
