#include "vulkan/ext/timing.hpp"

#include "vulkan/ops/ops.hpp"

#include <cmath>

namespace keel_vulkan {

void Timing::open(const keel_host *host, const Device *device) {
    close();
    if (device->facts().timestamp_bits == 0)
        refuse(host, KEEL_E_UNSUPPORTED, "the queue of '%s' has no clock",
               device->facts().properties.deviceName);
    VkQueryPoolCreateInfo info = {VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 2 * kMostOps;
    VkQueryPool pool = VK_NULL_HANDLE;
    check(host, vkCreateQueryPool(device->handle(), &info, nullptr, &pool), "vkCreateQueryPool");
    host_ = host;
    device_ = device;
    pool_ = pool;
    ops_ = next_ = 0;
    begun_ = timed_ = false;
    done_.clear();
}

void Timing::close() noexcept {
    if (pool_ != VK_NULL_HANDLE) vkDestroyQueryPool(device_->handle(), pool_, nullptr);
    pool_ = VK_NULL_HANDLE;
    done_.clear();
}

void Timing::begin_op(VkCommandBuffer commands) {
    begun_ = true;
    timed_ = done_.size() < kMostOps;
    if (!timed_) return;
    vkCmdResetQueryPool(commands, pool_, 2 * next_, 2);
    // Commands run one after the other, so an op begins when all earlier commands are done.
    vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_, 2 * next_);
}

void Timing::end_op(VkCommandBuffer commands, uint64_t value) {
    ++ops_;
    begun_ = false;
    if (!timed_) return;
    vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool_, 2 * next_ + 1);
    done_.push_back({ops_, value});
    next_ = (next_ + 1) % kMostOps;
}

uint64_t Timing::nanoseconds(uint64_t ticks) const {
    const uint32_t bits = device_->facts().timestamp_bits;
    if (bits < 64) ticks &= (uint64_t{1} << bits) - 1;
    const double period = device_->facts().properties.limits.timestampPeriod;
    return period == 1 ? ticks
                       : static_cast<uint64_t>(std::llround(static_cast<double>(ticks) * period));
}

uint32_t Timing::read(uint64_t done, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                      uint32_t capacity) {
    uint32_t n = 0;
    for (; n < capacity && !done_.empty() && done_.front().value <= done; done_.pop_front()) {
        const auto pair = static_cast<uint32_t>((next_ + kMostOps - done_.size()) % kMostOps);
        uint64_t ticks[2] = {};
        const VkResult result = vkGetQueryPoolResults(
            device_->handle(), pool_, 2 * pair, 2, sizeof ticks, ticks, sizeof ticks[0],
            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        check(host_, result, "vkGetQueryPoolResults");
        begin_ns[n] = nanoseconds(ticks[0]);
        end_ns[n] = nanoseconds(ticks[1]);
        number[n++] = done_.front().number;
    }
    return n;
}

void time_ops(keel_ctx &ctx, bool on) {
    ctx.stream.time_ops(on);
    check_messages(&ctx, "timestamps");
}

bool times_ops(const keel_ctx &ctx) { return ctx.stream.timing().is_on(); }

uint32_t read_times(keel_ctx &ctx, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                    uint32_t capacity) {
    const uint32_t n = ctx.stream.read_times(number, begin_ns, end_ns, capacity);
    check_messages(&ctx, "timestamps");
    return n;
}

uint64_t device_time(keel_ctx &ctx) {
    const PFN_vkGetCalibratedTimestampsEXT read = ctx.device.calibrated_timestamps;
    if (read == nullptr || !ctx.stream.timing().is_on())
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "the host cannot read the device's clock, or ops are not timed");
    VkCalibratedTimestampInfoEXT info = {VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT};
    info.timeDomain = VK_TIME_DOMAIN_DEVICE_EXT;
    uint64_t ticks = 0, deviation = 0;
    check(ctx.host, read(ctx.device.handle(), 1, &info, &ticks, &deviation),
          "vkGetCalibratedTimestampsEXT");
    check_messages(&ctx, "timestamps");
    return ctx.stream.timing().nanoseconds(ticks);
}

} // namespace keel_vulkan
