#pragma once

#include <cstdint>

// Defaults of config keys that layers below core/config need too. A default that only core/config
// needs is declared with its key.
namespace keel::defaults {

// Number of ops per submission with the strategy `batched`. It is the default of sync.ops. It is
// also used if a backend chooses `batched` and gives no number.
inline constexpr uint32_t ops_per_submit = 50;

// The least number of tokens between two levels of memory pressure. It is the default of
// policy.trigger.pressure.cooldown. The switch of a hybrid uses it too.
inline constexpr int64_t pressure_cooldown = 16;

} // namespace keel::defaults
