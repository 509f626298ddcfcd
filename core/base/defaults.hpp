#pragma once

#include <cstdint>

// Defaults of config keys that layers below core/config need as well. A default that only the
// config needs is declared with its key.
namespace keel::defaults {

// Ops per submission of the strategy batched: sync.ops, and backends that choose batched without a
// number.
inline constexpr uint32_t ops_per_submit = 50;

// The least number of tokens between two levels of memory pressure:
// policy.trigger.pressure.cooldown, and the switch of a hybrid.
inline constexpr int64_t pressure_cooldown = 16;

} // namespace keel::defaults
