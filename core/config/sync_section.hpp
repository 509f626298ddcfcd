#pragma once

#include "base/defaults.hpp"
#include "config/setting.hpp"
#include "config/words.hpp"

#include <cstdint>
#include <optional>

namespace keel::pipeline {

enum class SyncStrategy { automatic, lazy, eager, batched };
template <> struct Words<SyncStrategy> {
    static constexpr Word<SyncStrategy> all[] = {{SyncStrategy::automatic, "auto"},
                                                 {SyncStrategy::lazy, "lazy"},
                                                 {SyncStrategy::eager, "eager"},
                                                 {SyncStrategy::batched, "batched"}};
};

enum class StepReplay { automatic, off };
template <> struct Words<StepReplay> {
    static constexpr Word<StepReplay> all[] = {{StepReplay::automatic, "auto"},
                                               {StepReplay::off, "off"}};
};

enum class StepAhead { automatic, off };
template <> struct Words<StepAhead> {
    static constexpr Word<StepAhead> all[] = {{StepAhead::automatic, "auto"},
                                              {StepAhead::off, "off"}};
};

struct SyncSection {
    Setting<SyncStrategy> strategy;
    Setting<std::optional<int64_t>> ops; // given only with the strategy batched
    Setting<StepReplay> replay;
    Setting<StepAhead> ahead;

    int64_t ops_per_submit() const { return ops->value_or(defaults::ops_per_submit); }
    bool operator==(const SyncSection &) const = default;
};

// Refuses `ops` without the strategy batched. With batched, sets the default of `ops`.
void check_sync(SyncSection &sync);

} // namespace keel::pipeline
