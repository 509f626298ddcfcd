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

// The fewest of `n` documents that have to differ, all to one side, for a two-sided p of at most
// `level`. Nothing if not even all of them are enough. `all_differ(k)`: the inference of a sample
// in which k documents differ; its p falls as k grows.
std::optional<uint64_t>
documents_needed(uint64_t n, double level,
                 const std::function<std::shared_ptr<const Inference>(uint64_t)> &differing);

// The least share of documents that differ for `least` of `n` to do so four times out of five.
double share_for(uint64_t n, uint64_t least);

} // namespace keel
