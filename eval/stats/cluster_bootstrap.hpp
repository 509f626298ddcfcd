#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/interval.hpp"

#include <cstdint>
#include <optional>

namespace keel {

struct BootstrapInterval {
    Interval percentile;
    std::optional<Interval> bca; // bias-corrected and accelerated; nothing where it is not defined
};

// Means of clusters drawn with replacement. Nothing for fewer than two clusters. `resamples` at
// least 1. Throws Error(runtime) for sums that are not finite.
std::optional<BootstrapInterval> cluster_bootstrap(const ClusterSums &clusters, double confidence,
                                                   uint64_t resamples, uint64_t seed);

} // namespace keel
