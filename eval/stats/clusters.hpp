#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// Numbers of items, summed over the cluster (document) that they share: all that a mean and its
// uncertainty need.
struct ClusterSums {
    std::vector<double> sums;
    std::vector<double> counts; // of items, each above 0
    uint64_t items = 0;

    size_t size() const { return sums.size(); } // clusters
    double mean() const;                        // of the items; 0 without any
    // One number for each cluster. Their mean is mean(), and they spread as the mean does when
    // clusters are drawn: mean + (sum - count * mean) * clusters / items. With one item a cluster
    // these are the items.
    std::vector<double> linearized() const;
    // `clusters[i]` is any id for item i; clusters are kept in the order of their first item.
    // Throws Error(runtime) for a number that is not finite.
    static ClusterSums of(std::span<const double> values, std::span<const uint32_t> clusters);
};

// Standard error of the mean when clusters, not items, are independent. Nothing for fewer than two
// clusters. Throws Error(runtime) for sums that are not finite.
std::optional<double> cluster_error(const ClusterSums &clusters);

} // namespace keel
