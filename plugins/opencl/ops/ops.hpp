// The backend's ops and entry points: gpu/ops.hpp says what each is and in which file it stands.
#pragma once

#include "gpu/ops.hpp"
#include "opencl/stream.hpp"

namespace keel_opencl {

using namespace keel_gpu; // checks, views and constants: what both GPU backends say alike

KEEL_GPU_DECLARE_BACKEND

inline View view_or_none(keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return t != nullptr ? view_of(ctx.host, t, name) : View{};
}
inline uint32_t offset_of(keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return view_or_none(ctx, t, name).offset;
}

// For gpu/table.hpp.
struct PlanInUse { // kernels are found by a hash of few words; a plan has nothing to keep
    PlanInUse(keel_ctx &, keel_plan *) {}
};
inline void set_aside(keel_ctx &ctx, uint64_t bytes) { scratch(ctx, bytes); }
inline void after_op(keel_ctx &ctx) { // drivers complain at once, or when they are waited for
    ctx.timing.op_done();
}

} // namespace keel_opencl

namespace keel_gpu {
namespace backend = keel_opencl;
}
