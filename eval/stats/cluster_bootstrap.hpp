#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/interval.hpp"

#include <cstdint>
#include <optional>

namespace keel {

struct BootstrapInterval {
    Interval percentile;
    // bias-corrected and accelerated (BCa) interval; nullopt if the interval is not defined
    std::optional<Interval> bca;
};

// Intervals of the mean by a bootstrap that draws clusters with replacement. Returns nullopt for
// fewer than two clusters. `resamples` is at least 1. Throws Error(runtime) for sums that are not
// finite.
std::optional<BootstrapInterval> cluster_bootstrap(const ClusterSums &clusters, double confidence,
                                                   uint64_t resamples, uint64_t seed);

} // namespace keel
