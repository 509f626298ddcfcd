// Code that the cache ops share (kernels/kv.cl).
#pragma once

#include "opencl/ops/ops.hpp"

#include <algorithm>

namespace keel_opencl {

inline cl_kernel kv_kernel(keel_ctx &ctx, const char *name, Form form, uint32_t dim) {
    return ctx.kernels->get(Source::kv, name,
                            {{"LANES", lanes_of(form)}, {"MAX_DIM", dim_class(dim)}});
}

inline uint32_t dim_of(const keel_kv_view *kv) {
    return static_cast<uint32_t>(std::max(kv->k->shape[2], kv->v->shape[2]));
}

// Sets the kernel's name in the plan and builds the op's kernels, so that a planned call does not
// build them.
inline void build_kv(keel_ctx &ctx, PlanChoice &choice, const char *op, const keel_kv_view *kv,
                     std::initializer_list<const char *> kernels, uint32_t dim) {
    if (!choice.named) return;
    const Form form = ctx.form;
    for (const char *name : kernels) kv_kernel(ctx, name, form, dim);
    name_kernel(choice, "%s %s/%s %s", op, keel_dtype_name(kv->k->dtype),
                keel_dtype_name(kv->v->dtype), form_name(form));
}

// Queues qkv_prepare. kv_append uses it without queries and rotation (rope.cpp). If `seats` is
// given, the rows belong to several sequences, and the view is the view of seat 0.
void run_prepare(keel_ctx &ctx, const keel_qkv_args &a, const char *op,
                 const Seats *seats = nullptr);

} // namespace keel_opencl
