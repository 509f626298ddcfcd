// Declares the backend's ops and entry points. gpu/ops.hpp describes each op and names its file.
#pragma once

#include "gpu/ops.hpp"
#include "opencl/stream.hpp"

namespace keel_opencl {

using namespace keel_gpu; // checks, views and constants that both GPU backends share

KEEL_GPU_DECLARE_BACKEND

inline View view_or_none(keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return t != nullptr ? view_of(ctx.host, t, name) : View{};
}
inline uint32_t offset_of(keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return view_or_none(ctx, t, name).offset;
}

// gpu/table.hpp requires this class. It stores nothing in a plan, because the kernel cache finds a
// kernel fast, by a hash of a few words.
struct PlanInUse {
    PlanInUse(keel_ctx &, keel_plan *) {}
};
inline void set_aside(keel_ctx &ctx, uint64_t bytes) { scratch(ctx, bytes); }
// checks nothing: drivers report errors in the call or when the host waits
inline void after_op(keel_ctx &ctx) { ctx.timing.op_done(); }

} // namespace keel_opencl

namespace keel_gpu {
namespace backend = keel_opencl;
}
