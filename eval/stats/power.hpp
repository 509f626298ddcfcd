#pragma once

#include "eval/stats/inference.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace keel {

// The least true effect that a two-sided test at `confidence` finds with the given power. Throws
// Error(runtime) for an error that is not finite.
double minimal_detectable_effect(double standard_error, double freedom, double confidence,
                                 double power = 0.8);

// The fewest of `n` documents that must differ, all to one side, for a two-sided p of at most
// `level`. Nothing if even `n` are not enough. `all_differ(k)`: the inference for a sample in which
// k documents differ. Its p must fall as k rises.
std::optional<uint64_t>
documents_needed(uint64_t n, double level,
                 const std::function<std::shared_ptr<const Inference>(uint64_t)> &differing);

// The least share of differing documents for which at least `least` of `n` differ four times out of
// five.
double share_for(uint64_t n, uint64_t least);

} // namespace keel
