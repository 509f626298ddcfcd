#pragma once

#include <cstdint>

// Distributions that tests and intervals of experiments use. The error of each function is about
// 1e-12. The results are the same on every platform, except for the last digits of exp and log.
namespace keel {

double normal_cdf(double x);
// The x for which normal_cdf(x) is p. Returns -inf for p <= 0 and inf for p >= 1.
double normal_quantile(double p);

// Student's t distribution with `freedom` > 0 degrees of freedom.
double student_cdf(double t, double freedom);
double student_quantile(double p, double freedom);

} // namespace keel
