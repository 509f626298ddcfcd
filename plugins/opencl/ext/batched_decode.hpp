// What keel.batched_decode/1 is made of: the ops with rows of several sequences. The view in their args is that of seat 0.
#pragma once

#include "opencl/ops/ops.hpp"

namespace keel_opencl {

void run_batch_prepare(keel_ctx &, const keel_qkv_args &, const Seats &);
void run_batch_append(keel_ctx &, const keel_kv_append_args &, const Seats &);
void run_batch_attention(keel_ctx &, const keel_attention_args &, const Seats &);
void plan_batch_attention(keel_ctx &, const keel_attention_args &, const Seats &, PlanChoice &);

} // namespace keel_opencl
