// Declares the backend's ops and entry points, and functions that convert tensors to kernel
// parameters. gpu/ops.hpp describes each op and names its file.
#pragma once

#include "gpu/ops.hpp"
#include "vulkan/context.hpp"
#include "vulkan/kernels/params.h"

namespace keel_vulkan {

using namespace keel_gpu; // checks, views and constants that both GPU backends share

KEEL_GPU_DECLARE_BACKEND

// gpu/table.hpp requires this class. It stores the pipelines that an op looked up in the plan.
class PlanInUse {
  public:
    PlanInUse(keel_ctx &ctx, keel_plan *plan) : kernels_(ctx.kernels) {
        kernels_.keep_in(plan != nullptr ? &plan->pipelines : nullptr);
    }
    ~PlanInUse() { kernels_.keep_in(nullptr); }
    PlanInUse(const PlanInUse &) = delete;
    PlanInUse &operator=(const PlanInUse &) = delete;

  private:
    KernelCache &kernels_;
};
inline void set_aside(keel_ctx &ctx, uint64_t bytes) { scratch(&ctx, bytes); }
inline void after_op(keel_ctx &ctx) {
    ctx.stream.op_done();
    check_messages(&ctx, "op");
}

// These parameters are push constants. Every device supports 128 bytes of push constants.
static_assert(sizeof(LinearParams) <= 128 && sizeof(EmbedParams) <= 128 &&
              sizeof(NormParams) <= 128 && sizeof(ElementwiseParams) <= 128 &&
              sizeof(GateParams) <= 128 && sizeof(MoveParams) <= 128 && sizeof(RowsParams) <= 128 &&
              sizeof(RopeParams) <= 128 && sizeof(StatsParams) <= 128);
// These parameters are stored in memory, because they are too large for push constants.
static_assert(sizeof(AppendParams) > 128 && sizeof(GatherParams) > 128 &&
              sizeof(RerotateParams) > 128 && sizeof(AttentionParams) > 128 &&
              sizeof(KeysParams) > 128);

// Returns the size of a workgroup that handles one row. Every device supports 128 invocations, and
// GPUs support more.
inline uint32_t wide_group(const keel_ctx &ctx) {
    if (ctx.device.is_processor()) return 64;
    return std::min(256U, ctx.device.facts().properties.limits.maxComputeWorkGroupInvocations);
}

// Returns the device address of byte 0 of the tensor's buffer, or 0 if the tensor is absent.
inline VkDeviceAddress base_of(const keel_tensor *t) {
    return t == nullptr || t->buffer == nullptr ? 0 : t->buffer->range.address();
}
// Returns the device address of the tensor's element 0.
inline VkDeviceAddress address_of(const keel_tensor *t) {
    return base_of(t) + (t == nullptr ? 0 : t->offset);
}

// Returns the shape, strides and offset of a tensor in the form that kernels take. `name` is the
// tensor's name for errors.
inline Tensor tensor_of(const keel_ctx &ctx, const keel_tensor *t, const char *name) {
    const View v = view_of(ctx.host, t, name);
    return {{v.shape[0], v.shape[1], v.shape[2]},
            {v.stride[0], v.stride[1], v.stride[2]},
            v.n,
            v.offset};
}

// Returns the two dimensions next to the rows of a tensor.
inline Rows rows_of(const Tensor &t) { return {t.stride[1], t.stride[2], t.offset}; }

inline uint64_t row_count(const Tensor &t) {
    return uint64_t{t.shape[0]} * t.shape[1] * t.shape[2];
}

// If `all` is true and the rows of `out` and of all `others` are contiguous, makes `out` one long
// row. Skips NULL tensors.
inline void flatten(Tensor &out, std::initializer_list<Tensor *> others, bool all) {
    const auto dense = [](const Tensor &t, const Tensor &shape) {
        uint64_t stride = shape.n;
        for (int i = 2; i >= 0; --i) {
            if (shape.shape[i] > 1 && t.stride[i] != stride) return false;
            stride *= shape.shape[i];
        }
        return stride < uint64_t{1} << 31;
    };
    bool joins = all && dense(out, out);
    for (const Tensor *t : others) joins = joins && (t == nullptr || dense(*t, out));
    if (!joins) return;
    out.n = static_cast<uint>(out.n * row_count(out));
    out.shape[0] = out.shape[1] = out.shape[2] = 1;
}

// Returns the number of workgroups in one dimension, at most the number that every device supports.
// If more work is left, the kernels loop over it.
inline uint32_t groups(uint64_t n, uint64_t per_group) {
    const uint64_t count = (n + per_group - 1) / per_group;
    return static_cast<uint32_t>(count < 65535 ? count : 65535);
}

} // namespace keel_vulkan

namespace keel_gpu {
namespace backend = keel_vulkan;
}
