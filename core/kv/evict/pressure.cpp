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
    const auto last = static_cast<uint64_t>(config_.levels.size());
    // True if the cooldown has passed. If the sequence was truncated, the cooldown does not apply.
    const bool rested = state_.level == 0 || tokens < since_ || tokens - since_ >= config_.cooldown;
    uint64_t level = state_.level;
    if (is_critical) {
        level = last;
    } else if (is_low && rested) {
        level = std::min(level + 1, last);
    } else if (!is_low && is_gone && rested && level > 0) {
        --level;
    }
    if (level == state_.level) return Change::none;
    const Change change = level > state_.level ? Change::tighter : Change::looser;
    if (state_.level == 0) base_ = budget;
    since_ = tokens;
    state_.level = level;
    state_.share = level == 0 ? 1 : config_.levels[static_cast<size_t>(level - 1)];
    state_.available = memory.available;
    state_.low = low;
    state_.limited_by = memory.limited_by;
    state_.stalled = reading.stalled;
    state_.why = fmt::format("{} of memory available ({}), {} the threshold of {}",
                             format_bytes(memory.available), memory.limited_by,
                             memory.available < low ? "below" : "not below", format_bytes(low));
    if (stalls) {
        state_.why = fmt::format("tasks waited for memory in {:.1f}% of the last 10 s ({}), not "
                                 "below the threshold of {:.1f}%",
                                 *reading.stalled, reading.stalled_where, *config_.stalled);
    }
    return change;
}

std::optional<int64_t> PressureWatch::cap() const {
    if (state_.level == 0) return std::nullopt;
    return std::max<int64_t>(
        1, static_cast<int64_t>(std::floor(static_cast<double>(base_) * state_.share)));
}

void PressureWatch::restart() {
    state_ = {};
    base_ = since_ = 0;
    next_ = std::chrono::steady_clock::time_point::min();
}

void warn_of_pressure(const PressureState &state, const PressureConfig &config, int64_t slots,
                      uint64_t freed, const std::string &policy, const char *rule) {
    const bool is_last = state.level == config.levels.size();
    std::string who;
    if (rule != nullptr) {
        who = fmt::format("; the rule of {} chose the slots, because the inputs of policy {} are "
                          "not available now",
                          rule, policy);
    }
    log().warn("memory is short: {}; the KV cache shrinks to {} slots per head, {:.0f}% of the "
               "budget; {} freed{}{}",
               state.why, slots, 100 * state.share, format_bytes(freed), who,
               is_last ? "; this was the last step, so the cache cannot shrink further" : "");
}

void warn_of_relief(const PressureState &state, int64_t slots) {
    log().warn("memory is available again: {}; the KV cache may hold {} slots per head again, "
               "{:.0f}% of the budget",
               state.why, slots, 100 * state.share);
}

} // namespace keel
