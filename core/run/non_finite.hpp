#pragma once

#include "run/step_runner.hpp"

#include <span>

namespace keel {

bool all_finite(std::span<const float> values);

// A result of the sequence's last step is not finite. Computes again, looks at the residual stream
// after each layer, and throws Error(runtime) that names the first layer, the position and the
// probable cause.
[[noreturn]] void report_non_finite(const Sequence &sequence, StepRunner &runner);

} // namespace keel
