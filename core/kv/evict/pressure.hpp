#pragma once

#include "base/defaults.hpp"
#include "platform/system_monitor.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// The settings of policy.trigger.pressure: when memory counts as short, and how the budget then
// shrinks.
struct PressureConfig {
    // If fewer bytes are available, memory is short. nullopt: a tenth of the total memory, at most
    // 256 MiB.
    std::optional<uint64_t> low;
    // If fewer bytes are available, the budget shrinks to the last level at once. nullopt: a
    // quarter of `low`.
    std::optional<uint64_t> critical;
    // Threshold, in percent: memory is short if tasks waited for memory in at least this share of
    // the last 10 s (PSI). nullopt: waiting is not considered.
    std::optional<double> stalled;
    // shares of the budget, from the largest to the smallest
    std::vector<double> levels;
    int64_t cooldown = defaults::pressure_cooldown; // least number of tokens between two levels
    std::chrono::milliseconds interval{100};        // the least time between two readings
};

// The level that a PressureWatch has reached, and the memory reading that led to it.
struct PressureState {
    uint64_t level = 0;     // number in PressureConfig::levels, from 1; 0: the whole budget
    double share = 1;       // share of the budget that may be used
    uint64_t available = 0; // bytes
    uint64_t low = 0;       // the threshold for `available`
    std::string limited_by; // "system memory", or a control group
    // Measured percent of the last 10 s in which tasks waited for memory; nullopt: unknown.
    std::optional<double> stalled;
    std::string why; // the reason, as text for messages
};

// Watches the system's memory and returns how much of its budget a cache may use. Each time memory
// is short, the watch goes to the next level. It goes back one level when the available memory is
// at least 1.5 times `low` and stalls are below half of `stalled`. Each sequence has its own watch.
// Not thread-safe.
class PressureWatch {
  public:
    enum class Change { none, tighter, looser };

    PressureWatch(const PressureConfig &config, std::shared_ptr<SystemMonitor> monitor);

    // Reads the memory and returns the change of the level. Call it between steps. `tokens`: number
    // of tokens so far. `budget`: slots per head. The shares apply to the budget at the time when
    // memory becomes short. Reads the system's memory at most once per interval. If the result is
    // not `none`, state() is new.
    Change poll(int64_t tokens, int64_t budget);
    // Returns the slots per head that can stay, at least 1. nullopt: the budget is the only limit.
    std::optional<int64_t> cap() const;
    const PressureState &state() const { return state_; }
    // Call it when the sequence is emptied. Sets level 0, and the next poll() reads the system's
    // memory.
    void restart();

  private:
    Change judge(int64_t tokens, int64_t budget);

    PressureConfig config_;
    std::shared_ptr<SystemMonitor> monitor_;
    std::chrono::steady_clock::time_point next_;
    PressureState state_;
    int64_t base_ = 0;  // the budget in slots to which the shares apply
    int64_t since_ = 0; // number of tokens at the last change
};

// warn_of_pressure() warns that the cache shrinks to `slots` slots per head, which freed `freed`
// bytes. warn_of_relief() warns that the cache can grow to `slots` again. `rule`: the rule that
// decided instead of the policy `policy`; NULL if the policy decided.
void warn_of_pressure(const PressureState &state, const PressureConfig &config, int64_t slots,
                      uint64_t freed, const std::string &policy, const char *rule);
void warn_of_relief(const PressureState &state, int64_t slots);

} // namespace keel
