#pragma once

#include "eval/stats/interval.hpp"

namespace keel {

// Wilson's score interval of a rate. `trials` may be an effective number. With 0 the interval is
// [0, 1]. Throws Error(runtime) for a number that is not finite.
Interval wilson_interval(double hits, double trials, double confidence);

} // namespace keel
