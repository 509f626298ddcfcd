#pragma once

#include "platform/system_monitor.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// When memory counts as short, and what is done about it: policy.trigger.pressure in the core's terms.
struct PressureConfig {
    std::optional<uint64_t>
        low; // available bytes below which it is short; nullopt: a tenth of all, at most 256 MiB
    std::optional<uint64_t>
        critical; // below which the last step is taken at once; nullopt: a quarter of `low`
    std::optional<double>
        stalled; // percent of the time that tasks wait for memory (PSI); nullopt: not looked at
    std::vector<double> steps = {0.75, 0.5, 0.25}; // shares of the budget, falling
    int64_t cooldown = 16; // tokens from one step to the next, so that the first can take effect
    std::chrono::milliseconds interval{100}; // between two readings at least
};

// What a reading came to, for the log.
struct PressureFacts {
    uint64_t step = 0;      // how many are taken; 0: the budget is whole again
    double share = 1;       // of the budget
    uint64_t available = 0; // bytes
    uint64_t low = 0;       // the threshold that it was held against
    std::string limited_by; // "system memory", or a control group
    std::optional<double> stalled;
    std::string why; // in words
};

// Follows the system's memory and says how much of its budget a cache may use: less by a step each time memory is found short, more by a
// step once it is well above the threshold (half as much again; stalls below half of theirs). One for each sequence. Not thread-safe.
class PressureWatch {
  public:
    enum class Change { none, tighter, looser };

    PressureWatch(const PressureConfig &config, std::shared_ptr<SystemMonitor> monitor);

    // To be called at step boundaries. `tokens` seen by the sequence; `budget` in slots per head: what it is when memory
    // becomes short is what the shares are of. Reads the system once an interval and costs a look at the clock else. After a change other than none, facts() are new.
    Change poll(int64_t tokens, int64_t budget);
    // Slots per head that may stay; nullopt: as many as the budget says. No less than 1.
    std::optional<int64_t> cap() const;
    const PressureFacts &facts() const { return facts_; }
    // The sequence begins anew: no step is taken, and the next poll reads.
    void restart();

  private:
    Change judge(int64_t tokens, int64_t budget);

    PressureConfig config_;
    std::shared_ptr<SystemMonitor> monitor_;
    std::chrono::steady_clock::time_point next_;
    PressureFacts facts_;
    int64_t base_ = 0;  // slots that the shares are of
    int64_t since_ = 0; // tokens at the last change
};

// Warns that the cache goes down to `slots` per head, by which `freed` bytes became free, or that it
// may hold so many again.
void warn_of_pressure(const PressureFacts &facts, const PressureConfig &config, int64_t slots,
                      uint64_t freed);
void warn_of_relief(const PressureFacts &facts, int64_t slots);

} // namespace keel
