#pragma once

#include "device/device.hpp"
#include "ops/executor.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel {

class Pipeline;

// The text that `--explain` prints: device, sync, weights, the backend that runs each op, and the
// bytes that are copied between backends.
std::string explain_pipeline(const Pipeline &pipeline);
// Bytes copied between a hybrid's backends in a decode step, not counting moves of the cache.
uint64_t crossing_bytes_per_token(const Pipeline &pipeline);
// Warns of each kind of op that the device's backend does not run itself, so that the user sees
// each fallback.
void warn_of_fallbacks(const Device &device, const std::vector<const PlannedOp *> &ops);

} // namespace keel
