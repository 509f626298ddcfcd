#pragma once

#include "device/device.hpp"
#include "ops/executor.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel {

class Pipeline;

// Returns the text that `--explain` prints: device, sync, weights, the backend that runs each op,
// and the bytes that are copied between backends.
std::string explain_pipeline(const Pipeline &pipeline);
// Returns the bytes that a decode step copies between a hybrid's backends. Moves of the cache are
// not counted.
uint64_t crossing_bytes_per_token(const Pipeline &pipeline);
// Warns about each kind of op that the device's backend does not run itself. So the user sees each
// fallback.
void warn_of_fallbacks(const Device &device, const std::vector<const PlannedOp *> &ops);

} // namespace keel
