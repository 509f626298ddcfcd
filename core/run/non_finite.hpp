#pragma once

#include "run/step_runner.hpp"

#include <span>

namespace keel {

bool all_finite(std::span<const float> values);

// Call it if a result of the sequence's last step is not finite. Computes the step again and checks
// the residual stream after each layer. Throws Error(runtime) that names the first layer with a
// value that is not finite, the position and the probable cause.
[[noreturn]] void report_non_finite(const Sequence &sequence, StepRunner &runner);

} // namespace keel
