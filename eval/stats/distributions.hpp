#pragma once

#include <cstdint>

// The distributions that the tests and intervals of experiments need. Good to about 1e-12, and the
// same on every platform but for the last digits of its exp and log.
namespace keel {

double normal_cdf(double x);
// p in (0, 1), else -inf or inf.
double normal_quantile(double p);

// Student's t with `freedom` > 0 degrees.
double student_cdf(double t, double freedom);
double student_quantile(double p, double freedom);

} // namespace keel
