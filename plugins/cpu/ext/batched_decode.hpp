// The extension keel.batched_decode/1. Its functions are defined in ops/rope.cpp, ops/kv.cpp and
// ops/attention.cpp, next to the ops for one sequence.
#pragma once

#include "cpu/ops/ops.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_cpu {

extern const keel_batched_decode batched_decode;

keel_status plan_batch_prepare(keel_ctx *, const keel_qkv_args *, const keel_batch_kv *,
                               PlanChoice &) noexcept;
keel_status plan_batch_attention(keel_ctx *, const keel_attention_args *, const keel_batch_kv *,
                                 PlanChoice &) noexcept;
keel_status KEEL_CALL batch_qkv_prepare(keel_ctx *, const keel_qkv_args *,
                                        const keel_batch_kv *) noexcept;
keel_status KEEL_CALL batch_kv_append(keel_ctx *, const keel_kv_append_args *,
                                      const keel_batch_kv *) noexcept;
keel_status KEEL_CALL batch_attention(keel_ctx *, const keel_attention_args *,
                                      const keel_batch_kv *) noexcept;

} // namespace keel_cpu
