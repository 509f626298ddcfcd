#pragma once

#include "eval/stats/interval.hpp"

namespace keel {

// Wilson's score interval of the rate hits / trials. `trials` can be an effective sample size, so
// `trials` does not have to be an integer. If `trials` is 0, the interval is [0, 1]. Throws
// Error(runtime) for a number that is not finite.
Interval wilson_interval(double hits, double trials, double confidence);

} // namespace keel
