#pragma once

#include <cstdint>

// The distributions for the tests and intervals of experiments. Their error is about 1e-12. Results
// are the same on every platform, except for the last digits of exp and log.
namespace keel {

double normal_cdf(double x);
// P is in (0, 1); else the result is -inf or inf.
double normal_quantile(double p);

// Student's t distribution with `freedom` > 0 degrees of freedom.
double student_cdf(double t, double freedom);
double student_quantile(double p, double freedom);

} // namespace keel
