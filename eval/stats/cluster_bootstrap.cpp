#include "eval/stats/cluster_bootstrap.hpp"

#include "eval/stats/bootstrap.hpp"
#include "eval/stats/distributions.hpp"
#include "eval/stats/estimate.hpp"
#include "eval/stats/finite.hpp"
#include "eval/stats/random.hpp"

#include <algorithm>
#include <numeric>

namespace keel {
namespace {

// Returns for each cluster the mean of all items that are not in this cluster.
std::vector<double> jackknife(const ClusterSums &c) {
    const double sum = std::accumulate(c.sums.begin(), c.sums.end(), 0.0);
    const double count = std::accumulate(c.counts.begin(), c.counts.end(), 0.0);
    std::vector<double> out(c.sums.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = (sum - c.sums[i]) / (count - c.counts[i]);
    return out;
}

double acceleration(const ClusterSums &c) {
    const std::vector<double> left_out = jackknife(c);
    const double mean = std::accumulate(left_out.begin(), left_out.end(), 0.0) /
                        static_cast<double>(left_out.size());
    double squares = 0, cubes = 0;
    for (const double v : left_out) {
        const double d = mean - v;
        squares += d * d;
        cubes += d * d * d;
    }
    return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
}

std::optional<Interval> bca_interval(const std::vector<double> &sorted, const ClusterSums &c,
                                     double confidence) {
    // Means that differ from the sample's mean only by rounding count as equal to the sample's
    // mean. If the items are hits (0 or 1), many resamples have the sample's mean.
    const double mean = c.mean(), slack = 1e-12 * std::max(std::abs(mean), 1e-300);
    const auto below =
        std::lower_bound(sorted.begin(), sorted.end(), mean - slack) - sorted.begin();
    const auto not_above =
        std::upper_bound(sorted.begin(), sorted.end(), mean + slack) - sorted.begin();
    const double share =
        0.5 * static_cast<double>(below + not_above) / static_cast<double>(sorted.size());
    if (share <= 0 || share >= 1 || sorted.front() == sorted.back()) return std::nullopt;
    const double z0 = normal_quantile(share), a = acceleration(c),
                 z = normal_quantile(0.5 + 0.5 * confidence);
    const auto level = [&](double side) {
        const double sum = z0 + side;
        return normal_cdf(z0 + sum / (1 - a * sum));
    };
    if (1 - a * (z0 + z) <= 0 || 1 - a * (z0 - z) <= 0) return std::nullopt;
    return Interval{quantile(sorted, level(-z)), quantile(sorted, level(z))};
}

} // namespace

std::optional<BootstrapInterval> cluster_bootstrap(const ClusterSums &c, double confidence,
                                                   uint64_t resamples, uint64_t seed) {
    check_finite(c.sums);
    if (c.sums.size() < 2 || resamples == 0) return std::nullopt;
    Xoshiro256 random(seed);
    const auto mean_of = [&](const std::vector<size_t> &chosen) {
        double sum = 0, count = 0;
        for (const size_t i : chosen) {
            sum += c.sums[i];
            count += c.counts[i];
        }
        return sum / count;
    };
    std::vector<double> means = bootstrap(
        c.sums.size(), resamples, [&](size_t n) { return random.below(static_cast<uint32_t>(n)); },
        mean_of);
    std::sort(means.begin(), means.end());
    const double tail = 0.5 * (1 - confidence);
    BootstrapInterval out;
    out.percentile = {quantile(means, tail), quantile(means, 1 - tail)};
    out.bca = bca_interval(means, c, confidence);
    return out;
}

} // namespace keel
