#include "eval/stats/clusters.hpp"

#include "eval/stats/finite.hpp"

#include <numeric>
#include <unordered_map>

namespace keel {

double ClusterSums::mean() const {
    const double count = std::accumulate(counts.begin(), counts.end(), 0.0);
    return count > 0 ? std::accumulate(sums.begin(), sums.end(), 0.0) / count : 0;
}

std::vector<double> ClusterSums::linearized() const {
    const double centre = mean(), count = std::accumulate(counts.begin(), counts.end(), 0.0);
    const double scale = static_cast<double>(size()) / count;
    std::vector<double> out(size());
    for (size_t i = 0; i < out.size(); ++i)
        out[i] = centre + (sums[i] - counts[i] * centre) * scale;
    return out;
}

ClusterSums ClusterSums::of(std::span<const double> values, std::span<const uint32_t> clusters) {
    check_finite(values);
    ClusterSums out;
    std::unordered_map<uint32_t, size_t> places;
    for (size_t i = 0; i < values.size(); ++i) {
        const auto [at, is_new] = places.try_emplace(clusters[i], out.sums.size());
        if (is_new) {
            out.sums.push_back(0);
            out.counts.push_back(0);
        }
        out.sums[at->second] += values[i];
        out.counts[at->second] += 1;
    }
    out.items = values.size();
    return out;
}

std::optional<double> cluster_error(const ClusterSums &c) {
    check_finite(c.sums);
    if (c.size() < 2) return std::nullopt;
    const double mean = c.mean();
    double squares = 0, count = 0;
    for (size_t i = 0; i < c.size(); ++i) {
        const double residual = c.sums[i] - c.counts[i] * mean;
        squares += residual * residual;
        count += c.counts[i];
    }
    const auto k = static_cast<double>(c.size());
    const double error = std::sqrt(squares * k / (k - 1)) / count;
    // If all numbers are equal, a tiny error comes only from rounding in the sums.
    return error < 1e-14 * std::abs(mean) ? 0 : error;
}

} // namespace keel
