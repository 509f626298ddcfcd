#include "device/device_times.hpp"

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/trace.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace keel {
namespace {

constexpr uint32_t read_at_once = 1024;
constexpr size_t most_ops = 1'000'000; // limits the memory if a backend never reports a time

double microseconds(uint64_t ns) { return static_cast<double>(ns) / 1000; }

} // namespace

std::unique_ptr<DeviceTimes> DeviceTimes::start(Device &device, Trace &trace) {
    const void *theirs = device.extension(KEEL_EXT_TIMESTAMPS);
    if (theirs == nullptr) return nullptr;
    keel_timestamps table;
    if (keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_timestamps, read)) != KEEL_OK) {
        log().warn("backend {}: the plugin's {} table is too small or has another ABI major "
                   "version; the trace shows no device times",
                   device.plugin(), KEEL_EXT_TIMESTAMPS);
        return nullptr;
    }
    HostServices::drop_error();
    const keel_status status = table.enable(device.ctx(), 1);
    if (status != KEEL_OK) {
        const std::string message = take_message();
        log().info("backend {}: no device times for the trace{}{}", device.plugin(),
                   message.empty() ? "" : ": ", message);
        return nullptr;
    }
    return std::unique_ptr<DeviceTimes>(new DeviceTimes(device, trace, table));
}

DeviceTimes::~DeviceTimes() {
    if (!device_.is_lost()) table_.enable(device_.ctx(), 0);
    HostServices::drop_error();
}

void DeviceTimes::queued(const char *label, const char *name) {
    ops_.push_back({label, name});
    if (ops_.size() <= most_ops) return;
    ops_.pop_front();
    ++first_;
}

// Updates the difference between the device's clock and the host's clock. Clocks drift, so the
// difference is measured each time: the device's clock is read between two readings of the host's
// clock. If the device's clock cannot be read, the difference is estimated. The estimate assumes
// that the last op ended when the host's wait ended. In fact the op ended earlier, so each estimate
// is too large, and the smallest one is used.
void DeviceTimes::align(uint64_t last_end_ns) {
    uint64_t ns = 0;
    const double before = trace_.now();
    if (table_.now != nullptr && table_.now(device_.ctx(), &ns) == KEEL_OK) {
        offset_ = (before + trace_.now()) / 2 - microseconds(ns);
        return;
    }
    HostServices::drop_error();
    const double guess = before - microseconds(last_end_ns);
    offset_ = offset_ ? std::min(*offset_, guess) : guess;
}

void DeviceTimes::collect() {
    if (ops_.empty()) return;
    for (;;) {
        for (std::vector<uint64_t> *column : {&numbers_, &begins_, &ends_})
            column->resize(read_at_once);
        uint32_t n = 0;
        HostServices::drop_error();
        const keel_status status = table_.read(device_.ctx(), numbers_.data(), begins_.data(),
                                               ends_.data(), read_at_once, &n);
        if (status != KEEL_OK) device_.fail(status, "reading device times");
        if (n > read_at_once)
            throw_error(ErrorKind::plugin,
                        "backend {}: returned {} device times, expected at most {}",
                        device_.plugin(), n, read_at_once);
        if (n > 0) align(ends_[n - 1]);
        for (uint32_t i = 0; i < n; ++i) {
            if (numbers_[i] < first_ || numbers_[i] - first_ >= ops_.size() ||
                ends_[i] < begins_[i])
                continue;
            ops_.erase(ops_.begin(),
                       ops_.begin() + static_cast<std::ptrdiff_t>(numbers_[i] - first_));
            first_ = numbers_[i];
            trace_.device_span(device_.plugin(), ops_.front().name, ops_.front().label,
                               microseconds(begins_[i]) + *offset_,
                               microseconds(ends_[i]) + *offset_);
        }
        if (n < read_at_once) return;
    }
}

} // namespace keel
