#pragma once

#include <span>
#include <vector>

namespace keel {

// Holm's step-down adjustment of p-values for multiple tests. Returns the adjusted p-values in the
// order of `p`. Throws Error(runtime) for a number that is not finite.
std::vector<double> holm(std::span<const double> p);

} // namespace keel
