#include "kv/evict/pressure.hpp"

#include "base/display.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace keel {
namespace {

constexpr uint64_t most_low = uint64_t{256} << 20;

} // namespace

PressureWatch::PressureWatch(const PressureConfig &config, std::shared_ptr<SystemMonitor> monitor)
    : config_(config), monitor_(std::move(monitor)),
      next_(std::chrono::steady_clock::time_point::min()) {}

PressureWatch::Change PressureWatch::poll(int64_t tokens, int64_t budget) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return Change::none;
    const Change change = judge(tokens, budget);
    next_ = std::chrono::steady_clock::now() + config_.interval;
    return change;
}

PressureWatch::Change PressureWatch::judge(int64_t tokens, int64_t budget) {
    const MemoryReading reading = monitor_->read();
    const MemoryInfo &memory = reading.memory;
    const bool known = memory.total > 0;
    if (!known && !reading.stalled) return Change::none;
    const uint64_t low = config_.low.value_or(std::min(most_low, memory.total / 10));
    const uint64_t critical = config_.critical.value_or(low / 4);
    const bool stalls = config_.stalled && reading.stalled && *reading.stalled >= *config_.stalled;
    const bool is_low = (known && memory.available < low) || stalls;
    const bool is_critical = known && memory.available < critical;
    const bool is_gone =
        (!known || memory.available >= low + low / 2) &&
        !(config_.stalled && reading.stalled && *reading.stalled >= *config_.stalled / 2);
    const auto last = static_cast<uint64_t>(config_.steps.size());
    // A sequence that was cut back has waited long enough.
    const bool rested = facts_.step == 0 || tokens < since_ || tokens - since_ >= config_.cooldown;
    uint64_t step = facts_.step;
    if (is_critical) {
        step = last;
    } else if (is_low && rested) {
        step = std::min(step + 1, last);
    } else if (!is_low && is_gone && rested && step > 0) {
        --step;
    }
    if (step == facts_.step) return Change::none;
    const Change change = step > facts_.step ? Change::tighter : Change::looser;
    if (facts_.step == 0) base_ = budget;
    since_ = tokens;
    facts_.step = step;
    facts_.share = step == 0 ? 1 : config_.steps[static_cast<size_t>(step - 1)];
    facts_.available = memory.available;
    facts_.low = low;
    facts_.limited_by = memory.limited_by;
    facts_.stalled = reading.stalled;
    facts_.why = fmt::format("{} of memory available ({}), {} {}", format_bytes(memory.available),
                             memory.limited_by, memory.available < low ? "below" : "of at least",
                             format_bytes(low));
    if (stalls) {
        facts_.why =
            fmt::format("tasks waited for memory {:.1f}% of the last 10 s ({}), {:.1f}% or more",
                        *reading.stalled, reading.stalled_where, *config_.stalled);
    }
    return change;
}

std::optional<int64_t> PressureWatch::cap() const {
    if (facts_.step == 0) return std::nullopt;
    return std::max<int64_t>(
        1, static_cast<int64_t>(std::floor(static_cast<double>(base_) * facts_.share)));
}

void PressureWatch::restart() {
    facts_ = {};
    base_ = since_ = 0;
    next_ = std::chrono::steady_clock::time_point::min();
}

void warn_of_pressure(const PressureFacts &facts, const PressureConfig &config, int64_t slots,
                      uint64_t freed) {
    const bool is_last = facts.step == config.steps.size();
    log().warn("memory is short: {}; the KV cache goes down to {} slots per head, {:.0f}% of its "
               "budget: {} freed{}",
               facts.why, slots, 100 * facts.share, format_bytes(freed),
               is_last ? "; this is the last step, it cannot give back more" : "");
}

void warn_of_relief(const PressureFacts &facts, int64_t slots) {
    log().warn(
        "memory is back: {}; the KV cache may hold {} slots per head again, {:.0f}% of its budget",
        facts.why, slots, 100 * facts.share);
}

} // namespace keel
