#pragma once

#include "config/setting.hpp"
#include "config/words.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace keel::pipeline {

enum class PositionMode { absolute, rerotated, automatic };
template <> struct Words<PositionMode> {
    static constexpr Word<PositionMode> all[] = {{PositionMode::absolute, "absolute"},
                                                 {PositionMode::rerotated, "rerotated"},
                                                 {PositionMode::automatic, "auto"}};
};

enum class Trigger { prefill_end, budget, insert, every_n, pressure };
template <> struct Words<Trigger> {
    static constexpr Word<Trigger> all[] = {{Trigger::prefill_end, "prefill_end"},
                                            {Trigger::budget, "budget"},
                                            {Trigger::insert, "insert"},
                                            {Trigger::every_n, "every_n"},
                                            {Trigger::pressure, "pressure"}};
};

enum class BudgetKind { none, tokens, ratio, mib };

struct BudgetSection {
    Setting<std::optional<int64_t>> tokens; // the file gives at most one of the three keys
    Setting<std::optional<double>> ratio;
    Setting<std::optional<double>> mib;
    Setting<std::optional<int64_t>> slack; // in tokens; nullopt: an eighth of the budget

    BudgetKind kind() const noexcept;
    SourceLocation where() const; // place of the key that is given
    bool operator==(const BudgetSection &) const = default;
};

// The tokens `from` to `to` - 1 of a sequence.
struct Span {
    int64_t from = 0, to = 0;
    bool operator==(const Span &) const = default;
};

struct ProtectSection {
    Setting<int64_t> prefix, recent;
    Setting<bool> system_prompt; // protects the system prompt of a chat
    Setting<std::vector<Span>> spans;
    bool operator==(const ProtectSection &) const = default;
};

struct PressureSection {
    Setting<std::optional<double>> available_mib, critical_mib; // nullopt means auto
    Setting<std::optional<double>> stalled_percent;             // nullopt: stalls are not checked
    Setting<std::vector<double>> steps;
    Setting<int64_t> cooldown; // in tokens

    SourceLocation where() const; // place of the first key that is given; empty if none is
    bool operator==(const PressureSection &) const = default;
};

struct TriggerSection {
    Setting<std::vector<Trigger>> on;
    // check_eviction() refuses every_n without the trigger `every_n`, and the trigger without the
    // key. It refuses keys of `pressure` without the trigger `pressure`.
    Setting<std::optional<int64_t>> every_n;
    PressureSection pressure;

    bool has(Trigger trigger) const noexcept;
    bool operator==(const TriggerSection &) const = default;
};

// A value of policy.allocator.plugin. With this value, the properties of the policy decide which
// allocator Keel uses.
constexpr const char *auto_allocator = "auto";

struct PolicySection : PluginSection {
    PluginSection allocator;
    BudgetSection budget;
    ProtectSection protect;
    Setting<PositionMode> positions;
    TriggerSection trigger;
    Setting<std::optional<std::filesystem::path>> log; // an absolute path
    Setting<bool> log_positions;                       // may be true only if `log` is given
    Setting<int64_t> seed;
    bool operator==(const PolicySection &) const = default;
};

// Refuses a budget and triggers that contradict each other. A policy that evicts nothing ignores
// budget and triggers. So call this function after the policy is loaded, and only if the policy
// evicts. Throws Error(input) with the place.
void check_eviction(const PolicySection &policy);

// Refuses log_positions without a log.
void check_log(const PolicySection &policy);

} // namespace keel::pipeline
