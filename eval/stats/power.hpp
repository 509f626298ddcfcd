#pragma once

#include "eval/stats/inference.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace keel {

// The smallest true effect that a two-sided test at `confidence` detects with probability `power`.
// `freedom` is the degrees of freedom of the standard error. Throws Error(runtime) for a standard
// error that is not finite.
double minimal_detectable_effect(double standard_error, double freedom, double confidence,
                                 double power = 0.8);

// The smallest number of documents that must differ for a two-sided p-value of at most `level`, if
// all differences have the same sign. `n` is the number of all documents. Returns nullopt if even
// `n` differing documents are not enough. `differing(k)` returns the inference for a sample in
// which k documents differ; the p-value of this inference must fall as k rises.
std::optional<uint64_t>
documents_needed(uint64_t n, double level,
                 const std::function<std::shared_ptr<const Inference>(uint64_t)> &differing);

// Each of `n` documents differs with the same probability. Returns the smallest probability for
// which at least `least` documents differ in 80% of all samples.
double share_for(uint64_t n, uint64_t least);

// The next functions compute how many documents a planned experiment needs. All of these functions
// take the `level` of a two-sided test, and a true effect above 0. The sign of the effect makes no
// difference, so pass its absolute value.

// The power of Student's t test of a mean, if documents have the standard deviation `spread`.
// `freedom`: degrees of freedom with `documents` documents. `wider`: the critical value of the
// test, divided by that of Student's t; above 1 if the test needs more than Student's t.
double power_of_t(double effect, double spread, double documents, double freedom, double level,
                  double wider = 1);

// The power of McNemar's test, and of the score test of shares, to find a difference of `effect`.
// `square` is the mean square of a document's difference. For hits, `square` is the share of
// documents that differ.
double power_of_score(double effect, double square, double documents, double level);

// The power of Tango's score test to show that a loss of `margin` is excluded, if there is no
// difference. `step` is the size of the difference of one document. `step` is 1 for hits.
double power_of_non_inferiority(double margin, double square, double step, double documents,
                                double level);

// The smallest number of documents at which `power_at` reaches `power`. `power_at` must not fall as
// the number of documents rises. nullopt if a billion documents are not enough.
std::optional<uint64_t> documents_for_power(double power,
                                            const std::function<double(double)> &power_at);

} // namespace keel
