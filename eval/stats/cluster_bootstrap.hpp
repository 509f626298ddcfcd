#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/interval.hpp"

#include <cstdint>
#include <optional>

namespace keel {

struct BootstrapInterval {
    Interval percentile;
    std::optional<Interval> bca; // bias-corrected and accelerated; nothing if it is not defined
};

// Bootstrap of the mean: clusters are drawn with replacement. Returns nothing for fewer than two
// clusters. `resamples` is at least 1. Throws Error(runtime) for sums that are not finite.
std::optional<BootstrapInterval> cluster_bootstrap(const ClusterSums &clusters, double confidence,
                                                   uint64_t resamples, uint64_t seed);

} // namespace keel
