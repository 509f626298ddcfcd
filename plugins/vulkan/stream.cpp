#include "vulkan/stream.hpp"

#include "vulkan/context.hpp"

#include <algorithm>
#include <cstring>
#include <stdio.h>

namespace keel_vulkan {
namespace {

constexpr uint64_t kDownloadBytes = 4u << 20;

} // namespace

void Stream::check(VkResult result, const char *what) {
    if (result == VK_ERROR_DEVICE_LOST) lost_ = true;
    keel_vulkan::check(host_, result, what);
}

void Stream::require_alive() const {
    if (lost_) refuse(host_, KEEL_E_DEVICE_LOST, "the device was lost in an earlier call");
}

void Stream::open(const keel_host *host, const Device *device, Memory *memory, KernelCache &kernels,
                  uint32_t wait_seconds) {
    host_ = host;
    device_ = device;
    memory_ = memory;
    staging_.open(memory);
    layout_ = kernels.layout();
    slow_start_ = &kernels.slow_start();
    wait_seconds_ = wait_seconds;
    VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    pool.queueFamilyIndex = device->facts().queue_family;
    check(vkCreateCommandPool(device->handle(), &pool, nullptr, &pool_), "vkCreateCommandPool");
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool_;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    for (Frame &frame : frames_)
        check(vkAllocateCommandBuffers(device->handle(), &info, &frame.commands),
              "vkAllocateCommandBuffers");
    VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    const VkSemaphoreCreateInfo semaphore = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    check(vkCreateSemaphore(device->handle(), &semaphore, nullptr, &timeline_),
          "vkCreateSemaphore");
}

Stream::~Stream() { close(); }

void Stream::close() noexcept {
    if (device_ == nullptr) return;
    if (!settle()) return;
    const VkDevice device = device_->handle();
    timing_.close();
    for (const Garbage &g : garbage_) give_back(g);
    garbage_.clear();
    staging_.close();
    memory_->give_back(download_);
    memory_->give_back(mail_);
    vkDestroyCommandPool(device, pool_, nullptr);
    vkDestroySemaphore(device, timeline_, nullptr);
    device_ = nullptr;
}

// Starts recording into the next command buffer. Waits until this command buffer is free.
void Stream::begin() {
    require_alive();
    if (recording_) return;
    Frame &frame = frames_[frame_];
    wait_unasked(frame.value);
    collect();
    VkCommandBufferBeginInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    check(vkBeginCommandBuffer(frame.commands, &info), "vkBeginCommandBuffer");
    recording_ = true;
    recorded_ = 0;
    bound_ = VK_NULL_HANDLE;
    // The barrier before the first command makes the writes of earlier submissions visible.
    after_barrier_ = false;
}

// Records a barrier: all earlier commands finish, and their writes become visible, before the next
// command. One global barrier is enough, for two reasons. Kernels use addresses, so the host does
// not know which bytes they access. And in a decode step each op needs the result of the previous
// op.
void Stream::barrier() {
    if (after_barrier_) return;
    put_barrier(frames_[frame_].commands);
    after_barrier_ = true;
}

void Stream::put_barrier(VkCommandBuffer commands) {
    VkMemoryBarrier all = {VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    all.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    all.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                        VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    constexpr VkPipelineStageFlags stages =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    vkCmdPipelineBarrier(commands, stages, stages, 0, 1, &all, 0, nullptr, 0, nullptr);
}

void Stream::dispatch(VkPipeline pipeline, const void *params, uint32_t bytes, uint32_t x,
                      uint32_t y, uint32_t z, bool beside) {
    if (x == 0 || y == 0 || z == 0) return;
    if (step_ != nullptr) return record(pipeline, params, bytes, {x, y, z}, beside);
    begin();
    VkDeviceAddress address = 0;
    if (bytes > kPushBytes) {
        const Range block = stage(bytes, 16);
        std::memcpy(block.mapped(), params, bytes);
        address = block.address();
        params = &address;
        bytes = sizeof address;
        begin(); // stage() can have submitted the command buffer
    }
    const VkCommandBuffer commands = frames_[frame_].commands;
    if (timing_.is_on() && !timing_.op_has_begun()) timing_.begin_op(commands);
    if (!beside || recorded_ == 0) barrier();
    if (bound_ != pipeline) vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    bound_ = pipeline;
    vkCmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, params);
    vkCmdDispatch(commands, x, y, z);
    after_barrier_ = false;
    if (++recorded_ >= kMostRecorded) submit_unasked();
}

void Stream::time_ops(bool on) {
    finish();
    timing_.close();
    if (on) timing_.open(host_, device_);
}

void Stream::op_done() {
    if (!timing_.is_on()) return;
    if (!timing_.op_has_begun()) return timing_.skip_op();
    begin(); // the op's last command can have caused a submission
    timing_.end_op(frames_[frame_].commands, last_ + 1);
}

void Stream::copy(const Range &from, uint64_t from_offset, const Range &to, uint64_t to_offset,
                  uint64_t n) {
    begin();
    barrier();
    const VkBufferCopy region = {from.offset + from_offset, to.offset + to_offset, n};
    vkCmdCopyBuffer(frames_[frame_].commands, from.block->buffer, to.block->buffer, 1, &region);
    after_barrier_ = false;
    ++recorded_;
}

void Stream::submit(uint64_t value) {
    if (!recording_) return;
    Frame &frame = frames_[frame_];
    // This barrier lets the host read mapped memory after the semaphore has reached the value.
    VkMemoryBarrier to_host = {VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    to_host.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    to_host.dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT;
    vkCmdPipelineBarrier(frame.commands,
                         VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                         VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, nullptr, 0, nullptr);
    recording_ = false;
    // lost_ is true until the submission succeeds. If the submission fails, accepted ops are
    // missing, and later ops must not use their results.
    lost_ = true;
    check(vkEndCommandBuffer(frame.commands), "vkEndCommandBuffer");
    VkTimelineSemaphoreSubmitInfo timeline = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
    timeline.signalSemaphoreValueCount = 1;
    timeline.pSignalSemaphoreValues = &value;
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, &timeline};
    info.commandBufferCount = 1;
    info.pCommandBuffers = &frame.commands;
    info.signalSemaphoreCount = 1;
    info.pSignalSemaphores = &timeline_;
    check(vkQueueSubmit(device_->queue(), 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");
    lost_ = false;
    submitted_ = value;
    frame.value = value;
    frame.staged = staging_.taken();
    frame_ = (frame_ + 1) % frames_.size();
}

uint64_t Stream::flush() {
    require_alive();
    const uint64_t ticket = ++last_;
    submit(ticket);
    return ticket;
}

uint64_t Stream::done() {
    uint64_t value = 0;
    check(vkGetSemaphoreCounterValue(device_->handle(), timeline_, &value),
          "vkGetSemaphoreCounterValue");
    if (value > done_) done_ = value;
    return done_;
}

bool Stream::wait_slice(uint64_t value, VkResult &result) noexcept {
    constexpr uint64_t second = 1000000000;
    const uint64_t before = done_;
    VkSemaphoreWaitInfo info = {
        VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, nullptr, 0, 1, &timeline_, &value};
    result = vkWaitSemaphores(device_->handle(), &info, second);
    uint64_t now = result == VK_SUCCESS ? value : 0;
    if (result == VK_TIMEOUT) {
        const VkResult read = vkGetSemaphoreCounterValue(device_->handle(), timeline_, &now);
        if (read < 0) result = read;
    }
    if (result >= 0) done_ = std::max(done_, now);
    return done_ > before;
}

// Waits in slices of one second. So a lost device is noticed, and a device that never answers does
// not hang the program. Only time without progress counts: if several submissions are pending, each
// submission has wait_seconds.
void Stream::wait_value(uint64_t value) {
    for (uint32_t silent = 0; value > done_;) {
        require_alive();
        VkResult result = VK_SUCCESS;
        silent = wait_slice(value, result) ? 0 : silent + 1;
        check(result, "vkWaitSemaphores");
        if (result == VK_TIMEOUT)
            slow_start_->passed(host_, device_->facts().properties.deviceName, 1);
        if (value <= done_ && value == submitted_) slow_start_->work_ended();
        if (silent < wait_seconds_ || value <= done_) continue;
        lost_ = timed_out_ = true;
        refuse(host_, KEEL_E_DEVICE_LOST,
               "the device has not answered for %u seconds (parameter wait_seconds)",
               wait_seconds_);
    }
}

void Stream::submit_unasked() {
    submit(++last_);
    ++own_.submits;
}

void Stream::wait_unasked(uint64_t value) {
    if (value <= done_ || value <= done()) return;
    ++own_.waits;
    wait_value(value);
}

bool Stream::settle() noexcept {
    if (device_ == nullptr || submitted_ <= done_) return true;
    if (gone_) return false;
    const uint32_t seconds = timed_out_ ? std::max(kLastSeconds, wait_seconds_) : wait_seconds_;
    const auto tell = [&](keel_log_level level, const char *before, const char *behind) {
        char text[160];
        snprintf(text, sizeof text, "%s %u seconds%s", before, seconds, behind);
        if (KEEL_HAS(host_, keel_host, log)) host_->log(host_, level, text);
    };
    if (timed_out_)
        tell(KEEL_LOG_WARN, "Keel waits for the device that did not answer for another", "");
    for (uint32_t silent = 0; submitted_ > done_ && silent < seconds;) {
        VkResult result = VK_SUCCESS;
        silent = wait_slice(submitted_, result) ? 0 : silent + 1;
        if (result >= 0) continue;
        // For a lost device, this call returns in finite time, and nothing runs after it.
        result = vkDeviceWaitIdle(device_->handle());
        if (result == VK_SUCCESS || result == VK_ERROR_DEVICE_LOST) done_ = submitted_;
        break;
    }
    gone_ = submitted_ > done_;
    if (gone_)
        tell(KEEL_LOG_ERROR, "the device did not answer for",
             "; its buffers are not freed, because it may still use them");
    return !gone_;
}

void Stream::wait(uint64_t ticket) {
    if (ticket == 0 || ticket > last_)
        refuse(host_, KEEL_E_INVALID_ARG, "wait: ticket %llu is unknown",
               static_cast<unsigned long long>(ticket));
    require_alive();
    // If no commands were recorded, a flush returns a ticket without a submission. Waiting for such
    // a ticket means waiting for the submission before it.
    wait_value(std::min(ticket, submitted_));
}

bool Stream::poll(uint64_t ticket) {
    if (ticket == 0 || ticket > last_)
        refuse(host_, KEEL_E_INVALID_ARG, "poll: ticket %llu is unknown",
               static_cast<unsigned long long>(ticket));
    require_alive();
    return std::min(ticket, submitted_) <= done_ || std::min(ticket, submitted_) <= done();
}

void Stream::finish() {
    require_alive();
    if (recording_) submit(++last_);
    wait_value(submitted_);
    collect();
}

bool Stream::idle() {
    require_alive();
    return !recording_ && (submitted_ <= done_ || submitted_ <= done());
}

void Stream::collect() {
    for (; !garbage_.empty() && garbage_.front().value <= done_; garbage_.pop_front())
        give_back(garbage_.front());
}

void Stream::give_back(const Garbage &garbage) {
    Range range = garbage.range;
    memory_->give_back(range);
    if (garbage.commands != VK_NULL_HANDLE)
        vkFreeCommandBuffers(device_->handle(), pool_, 1, &garbage.commands);
}

void Stream::give_back_later(Range range) {
    if (range.block == nullptr) return;
    if (!recording_ && submitted_ <= done_) return memory_->give_back(range);
    // The commands that are being recorded will be submitted with a value above the last ticket.
    garbage_.push_back({recording_ ? last_ + 1 : submitted_, range});
}

Range Stream::stage(uint64_t n, uint64_t align) {
    for (;;) {
        const Range part = staging_.take(n, align);
        if (part.block != nullptr) return part;
        // Waits for the oldest command buffer that still uses a part of the staging memory. This
        // can be the command buffer that is being recorded.
        const Frame *oldest = nullptr;
        for (const Frame &frame : frames_)
            if (frame.value != 0 && staging_.holds(frame.staged) &&
                (oldest == nullptr || frame.value < oldest->value))
                oldest = &frame;
        if (oldest != nullptr) {
            wait_unasked(oldest->value);
            staging_.release(oldest->staged);
        } else if (recording_) {
            submit_unasked();
        } else {
            staging_.release(staging_.taken());
        }
    }
}

void Stream::write(const Range &to, uint64_t offset, const void *from, uint64_t n) {
    require_alive();
    if (n == 0) return;
    if (to.mapped() != nullptr && idle()) {
        std::memcpy(to.mapped() + offset, from, n);
        return;
    }
    for (uint64_t at = 0; at < n;) {
        const uint64_t piece = std::min<uint64_t>(n - at, Staging::kBytes / 4);
        const Range staged = stage(piece, 16);
        std::memcpy(staged.mapped(), static_cast<const uint8_t *>(from) + at, piece);
        copy(staged, 0, to, offset + at, piece);
        at += piece;
    }
}

void Stream::read(const Range &from, uint64_t offset, void *to, uint64_t n) {
    if (from.mapped() != nullptr) {
        finish();
        if (n != 0) std::memcpy(to, from.mapped() + offset, n);
        return;
    }
    if (n != 0 && download_.block == nullptr)
        download_ = memory_->take(MemoryUse::download, kDownloadBytes);
    for (uint64_t at = 0; at < n;) {
        const uint64_t piece = std::min(n - at, kDownloadBytes);
        copy(from, offset + at, download_, 0, piece);
        finish();
        std::memcpy(static_cast<uint8_t *>(to) + at, download_.mapped(), piece);
        at += piece;
    }
    if (n == 0) finish();
}

} // namespace keel_vulkan
