#include "vulkan/ops/ops.hpp"

#include <cstring>
#include <utility>

namespace keel_vulkan {

void Stream::start(keel_recording &step) {
    require_alive();
    VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    allocate.commandPool = pool_;
    allocate.level = VK_COMMAND_BUFFER_LEVEL_SECONDARY;
    allocate.commandBufferCount = 1;
    check(vkAllocateCommandBuffers(device_->handle(), &allocate, &step.commands),
          "vkAllocateCommandBuffers");
    const VkCommandBufferInheritanceInfo nothing = {
        VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
    VkCommandBufferBeginInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    // The step can be queued again while it still runs.
    info.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
    info.pInheritanceInfo = &nothing;
    check(vkBeginCommandBuffer(step.commands, &info), "vkBeginCommandBuffer");
    step_ = &step;
}

void Stream::end_step() {
    const keel_recording &step = *std::exchange(step_, nullptr);
    check(vkEndCommandBuffer(step.commands), "vkEndCommandBuffer");
}

// Like dispatch(), but records the command into the step.
void Stream::record(VkPipeline pipeline, const void *params, uint32_t bytes,
                    const uint32_t (&groups)[3], bool beside) {
    constexpr uint64_t piece = 64 << 10;
    keel_recording &step = *step_;
    VkDeviceAddress address = 0;
    if (bytes > kPushBytes) {
        if (step.params.empty() || step.params_used + bytes > piece) {
            step.params.reserve(step.params.size() + 1);
            step.params.push_back(memory_->take(MemoryUse::upload, piece));
            step.params_used = 0;
        }
        const Range &range = step.params.back();
        std::memcpy(range.mapped() + step.params_used, params, bytes);
        address = range.address() + step.params_used;
        step.params_used += (bytes + 15) / 16 * 16;
        params = &address;
        bytes = sizeof address;
    }
    if (!step.after_barrier && !beside) put_barrier(step.commands);
    if (step.bound != pipeline)
        vkCmdBindPipeline(step.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    step.bound = pipeline;
    vkCmdPushConstants(step.commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, params);
    vkCmdDispatch(step.commands, groups[0], groups[1], groups[2]);
    step.after_barrier = false;
    ++step.dispatches;
}

void Stream::execute(const keel_recording &step) {
    if (step.dispatches == 0) return;
    begin();
    barrier();
    vkCmdExecuteCommands(frames_[frame_].commands, 1, &step.commands);
    bound_ = VK_NULL_HANDLE; // after the step the bound pipeline is unknown
    after_barrier_ = false;
    recorded_ += step.dispatches;
    if (recorded_ >= kMostRecorded) submit_unasked();
}

void Stream::drop(keel_recording &step) noexcept {
    if (step_ == &step) {
        step_ = nullptr;
        vkEndCommandBuffer(step.commands);
    }
    for (const Range &range : step.params) give_back_later(range);
    step.params.clear();
    if (step.commands == VK_NULL_HANDLE) return;
    if (!recording_ && submitted_ <= done_) {
        vkFreeCommandBuffers(device_->handle(), pool_, 1, &step.commands);
    } else {
        garbage_.push_back({recording_ ? last_ + 1 : submitted_, {}, step.commands});
    }
    step.commands = VK_NULL_HANDLE;
}

const char *const recording_kind = "a secondary command buffer";

std::unique_ptr<keel_recording> start_recording(keel_ctx &ctx) {
    auto step = std::make_unique<keel_recording>();
    ctx.stream.start(*step);
    check_messages(&ctx, "recording");
    return step;
}

void end_recording(keel_ctx &ctx, std::unique_ptr<keel_recording> &step, bool wanted) {
    if (!wanted) return ctx.stream.drop(*step);
    try {
        ctx.stream.end_step();
        check_messages(&ctx, "recording");
    } catch (...) {
        ctx.stream.drop(*step);
        throw;
    }
    ++ctx.recordings;
}

void submit_recording(keel_ctx &ctx, keel_recording &step) {
    ctx.stream.execute(step);
    check_messages(&ctx, "submitting a recording");
}

void destroy_recording(keel_ctx &ctx, keel_recording *step) noexcept {
    ctx.stream.drop(*step);
    delete step;
    if (--ctx.recordings == 0) give_back_old_scratch(ctx);
}

} // namespace keel_vulkan
