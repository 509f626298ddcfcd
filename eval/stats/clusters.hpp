#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// Sums of numbers over clusters. Each number belongs to one item, and each item to one cluster (a
// document). The mean of the items and the uncertainty of the mean need only these sums.
struct ClusterSums {
    std::vector<double> sums;
    std::vector<double> counts; // number of items in each cluster, at least 1
    uint64_t items = 0;

    size_t size() const { return sums.size(); } // number of clusters
    double mean() const;                        // mean of all items; 0 if there are no items
    // One number for each cluster: mean + (sum - count * mean) * clusters / items. The mean of
    // these numbers is mean(). The standard error of these numbers is the standard error of mean()
    // if clusters are drawn at random. If each cluster has one item, the numbers are the items'
    // numbers.
    std::vector<double> linearized() const;
    // `values[i]` is the number of item i. `clusters[i]` is the id of the item's cluster. An id can
    // be any number. The order of the clusters is the order of their first items. Throws
    // Error(runtime) for a number that is not finite.
    static ClusterSums of(std::span<const double> values, std::span<const uint32_t> clusters);
};

// The standard error of the mean of the items, if clusters are independent but items of one cluster
// are not. Returns nullopt for fewer than two clusters. Throws Error(runtime) for sums that are not
// finite.
std::optional<double> cluster_error(const ClusterSums &clusters);

} // namespace keel
