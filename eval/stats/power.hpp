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
// which k documents differ; its p-value must fall as k rises.
std::optional<uint64_t>
documents_needed(uint64_t n, double level,
                 const std::function<std::shared_ptr<const Inference>(uint64_t)> &differing);

// Each of `n` documents differs with the same probability. Returns the smallest such probability
// for which at least `least` documents differ in 80% of all samples.
double share_for(uint64_t n, uint64_t least);

} // namespace keel
