#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// Numbers of items, summed over each cluster (document). The mean and its uncertainty need no more.
struct ClusterSums {
    std::vector<double> sums;
    std::vector<double> counts; // items in each cluster, at least 1
    uint64_t items = 0;

    size_t size() const { return sums.size(); } // number of clusters
    double mean() const;                        // of the items; 0 without items
    // One number for each cluster: mean + (sum - count * mean) * clusters / items. Their mean is
    // mean(). Their spread is that of the mean when clusters are drawn. If each cluster has one
    // item, they are the items.
    std::vector<double> linearized() const;
    // `clusters[i]` is the id of item i's cluster, which may be any number. Clusters are in the
    // order of their first item. Throws Error(runtime) for a number that is not finite.
    static ClusterSums of(std::span<const double> values, std::span<const uint32_t> clusters);
};

// The standard error of the mean if clusters, not items, are independent. Nothing for fewer than
// two clusters. Throws Error(runtime) for sums that are not finite.
std::optional<double> cluster_error(const ClusterSums &clusters);

} // namespace keel
