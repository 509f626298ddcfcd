#include "eval/stats/statistics.hpp"

#include "base/error.hpp"
#include "eval/stats/bootstrap.hpp"
#include "eval/stats/distributions.hpp"
#include "eval/stats/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace keel {
namespace {

void check_finite(std::span<const double> values) {
    for (const double v : values) {
        if (!std::isfinite(v))
            throw_error(ErrorKind::runtime,
                        "a statistic of numbers of which one is {}: the item that gave it "
                        "has to be mended or left out",
                        v);
    }
}

double upper_z(double confidence) { return normal_quantile(0.5 + 0.5 * confidence); }

// The mean with one cluster left out, for each.
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
    // Means that equal the sample's but for rounding count as equal: hits have many of them.
    const double mean = c.mean(), slack = 1e-12 * std::max(std::abs(mean), 1e-300);
    const auto below =
        std::lower_bound(sorted.begin(), sorted.end(), mean - slack) - sorted.begin();
    const auto not_above =
        std::upper_bound(sorted.begin(), sorted.end(), mean + slack) - sorted.begin();
    const double share =
        0.5 * static_cast<double>(below + not_above) / static_cast<double>(sorted.size());
    if (share <= 0 || share >= 1 || sorted.front() == sorted.back()) return std::nullopt;
    const double z0 = normal_quantile(share), a = acceleration(c), z = upper_z(confidence);
    const auto level = [&](double side) {
        const double sum = z0 + side;
        return normal_cdf(z0 + sum / (1 - a * sum));
    };
    if (1 - a * (z0 + z) <= 0 || 1 - a * (z0 - z) <= 0) return std::nullopt;
    return Interval{quantile(sorted, level(-z)), quantile(sorted, level(z))};
}

// Sums of the chosen ones of up to eight numbers, for each choice.
std::vector<double> choice_sums(std::span<const double> values) {
    std::vector<double> out((values.size() + 7) / 8 * 256, 0.0);
    for (size_t group = 0; group * 8 < values.size(); ++group) {
        double *table = out.data() + group * 256;
        const size_t here = std::min<size_t>(8, values.size() - group * 8);
        for (size_t choice = 1; choice < 256; ++choice) {
            double sum = 0;
            for (size_t i = 0; i < here; ++i)
                if ((choice >> i & 1) != 0) sum += values[group * 8 + i];
            table[choice] = sum;
        }
    }
    return out;
}

} // namespace

AbRandom::AbRandom(uint64_t seed) {
    for (uint64_t &word : state_) {
        seed += 0x9e3779b97f4a7c15;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        word = z ^ (z >> 31);
    }
}

uint64_t AbRandom::next() {
    const auto rotate = [](uint64_t x, int by) { return (x << by) | (x >> (64 - by)); };
    const uint64_t result = rotate(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
}

double ClusterSums::mean() const {
    const double count = std::accumulate(counts.begin(), counts.end(), 0.0);
    return count > 0 ? std::accumulate(sums.begin(), sums.end(), 0.0) / count : 0;
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
    if (c.sums.size() < 2) return std::nullopt;
    const double mean = c.mean();
    double squares = 0, count = 0;
    for (size_t i = 0; i < c.sums.size(); ++i) {
        const double residual = c.sums[i] - c.counts[i] * mean;
        squares += residual * residual;
        count += c.counts[i];
    }
    const auto k = static_cast<double>(c.sums.size());
    const double error = std::sqrt(squares * k / (k - 1)) / count;
    // Equal numbers whose sums were rounded have no spread.
    return error < 1e-14 * std::abs(mean) ? 0 : error;
}

std::optional<BootstrapInterval> cluster_bootstrap(const ClusterSums &c, double confidence,
                                                   uint64_t resamples, uint64_t seed) {
    check_finite(c.sums);
    if (c.sums.size() < 2 || resamples == 0) return std::nullopt;
    AbRandom random(seed);
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

std::optional<Interval> student_interval(const ClusterSums &c, double confidence) {
    const auto error = cluster_error(c);
    if (!error) return std::nullopt;
    const double reach =
        student_quantile(0.5 + 0.5 * confidence, static_cast<double>(c.sums.size() - 1)) * *error;
    return Interval{c.mean() - reach, c.mean() + reach};
}

TrimmedMean TrimmedMean::of(std::vector<double> values) {
    check_finite(values);
    TrimmedMean out;
    const size_t n = values.size(), cut = n / 5;
    if (n == 0) return out;
    std::sort(values.begin(), values.end());
    const std::span<const double> middle(values.data() + cut, n - 2 * cut);
    const auto count = static_cast<double>(n), left = static_cast<double>(middle.size());
    out.mean = std::accumulate(middle.begin(), middle.end(), 0.0) / left;
    out.freedom = left - 1;
    if (n < 2) return out;
    // Winsorized: what was left out counts as its nearest neighbour that was not.
    const auto ends = static_cast<double>(cut);
    const double total =
        std::accumulate(middle.begin(), middle.end(), ends * (middle.front() + middle.back()));
    const double centre = total / count;
    const auto square = [&](double v) { return (v - centre) * (v - centre); };
    double squares = ends * (square(middle.front()) + square(middle.back()));
    for (const double v : middle) squares += square(v);
    out.error = std::sqrt(squares / (left * (left - 1)));
    return out;
}

std::optional<Interval> TrimmedMean::interval(double confidence) const {
    if (!error) return std::nullopt;
    const double reach = student_quantile(0.5 + 0.5 * confidence, freedom) * *error;
    return Interval{mean - reach, mean + reach};
}

std::optional<double> TrimmedMean::test() const {
    if (!error) return std::nullopt;
    if (*error == 0) return mean == 0 ? 1.0 : 0.0;
    return std::min(1.0, 2 * student_cdf(-std::abs(mean / *error), freedom));
}

Interval wilson_interval(double hits, double trials, double confidence) {
    check_finite({{hits, trials}});
    if (trials <= 0) return {0, 1};
    const double z2 = std::pow(upper_z(confidence), 2), rate = hits / trials;
    const double centre = (hits + 0.5 * z2) / (trials + z2);
    const double reach = std::sqrt(z2) / (trials + z2) *
                         std::sqrt(std::max(0.0, rate * (1 - rate)) * trials + 0.25 * z2);
    return {std::clamp(centre - reach, 0.0, rate), std::clamp(centre + reach, rate, 1.0)};
}

double mcnemar_exact(const PairedCounts &c) {
    const uint64_t differ = c.first_only + c.second_only;
    return std::min(1.0, 2 * fair_coin_cdf(std::min(c.first_only, c.second_only), differ));
}

Interval newcombe_interval(const PairedCounts &c, double confidence) {
    const auto n = static_cast<double>(c.total());
    if (n == 0) return {-1, 1};
    const auto a = static_cast<double>(c.both), b = static_cast<double>(c.first_only);
    const auto d = static_cast<double>(c.neither), e = static_cast<double>(c.second_only);
    const double first = (a + b) / n, second = (a + e) / n, difference = (b - e) / n;
    const Interval w1 = wilson_interval(a + b, n, confidence),
                   w2 = wilson_interval(a + e, n, confidence);
    // The correlation of the two, with a continuity correction where it is positive.
    const double product = (a + b) * (e + d) * (a + e) * (b + d);
    double phi = 0;
    if (product > 0) {
        const double cross = a * d - b * e;
        phi = (cross > 0 ? std::max(cross - 0.5 * n, 0.0) : cross) / std::sqrt(product);
    }
    const auto reach = [&](double x, double y) {
        return std::sqrt(std::max(0.0, x * x - 2 * phi * x * y + y * y));
    };
    return {std::max(-1.0, difference - reach(first - w1.low, w2.high - second)),
            std::min(1.0, difference + reach(w1.high - first, second - w2.low))};
}

SignFlip sign_flip_test(std::span<const double> cluster_sums, uint64_t resamples, uint64_t seed) {
    check_finite(cluster_sums);
    std::vector<double> values;
    double total = 0;
    for (const double v : cluster_sums) {
        if (v != 0) values.push_back(std::abs(v));
        total += v;
    }
    if (values.empty()) return {1, true};
    const double all = std::accumulate(values.begin(), values.end(), 0.0);
    // Flips that reach the same sum but for rounding are as extreme.
    const double extreme = std::abs(total) - 1e-12 * all;
    const auto as_extreme = [&](double chosen) { return std::abs(2 * chosen - all) >= extreme; };
    constexpr size_t most_exact = 17;
    if (values.size() <= most_exact) {
        const std::vector<double> sums = choice_sums(values);
        const uint32_t flips = uint32_t{1} << values.size();
        uint64_t count = 0;
        for (uint32_t flip = 0; flip < flips; ++flip) {
            double chosen = 0;
            for (size_t group = 0; group * 256 < sums.size(); ++group)
                chosen += sums[group * 256 + (flip >> (8 * group) & 255)];
            count += as_extreme(chosen) ? 1 : 0;
        }
        return {static_cast<double>(count) / flips, true};
    }
    const std::vector<double> sums = choice_sums(values);
    const size_t groups = sums.size() / 256;
    AbRandom random(seed);
    uint64_t count = 0, drawn = 0;
    const auto draw = [&](uint64_t until) {
        for (; drawn < until; ++drawn) {
            double chosen = 0;
            uint64_t bits = 0;
            for (size_t group = 0; group < groups; ++group, bits >>= 8) {
                if (group % 8 == 0) bits = random.next();
                chosen += sums[group * 256 + (bits & 255)];
            }
            count += as_extreme(chosen) ? 1 : 0;
        }
    };
    draw(resamples);
    if (count < 10) draw(10 * resamples);
    return {static_cast<double>(count + 1) / static_cast<double>(drawn + 1), false};
}

std::optional<double> student_test(const ClusterSums &c) {
    const auto error = cluster_error(c);
    if (!error) return std::nullopt;
    const double mean = c.mean();
    if (*error == 0) return mean == 0 ? 1.0 : 0.0;
    return std::min(
        1.0, 2 * student_cdf(-std::abs(mean / *error), static_cast<double>(c.sums.size() - 1)));
}

std::vector<double> holm(std::span<const double> p) {
    check_finite(p);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
    std::vector<double> out(p.size());
    double most = 0;
    for (size_t i = 0; i < order.size(); ++i) {
        most = std::max(most, std::min(1.0, p[order[i]] * static_cast<double>(p.size() - i)));
        out[order[i]] = most;
    }
    return out;
}

double minimal_detectable_effect(double standard_error, double freedom, double confidence,
                                 double power) {
    check_finite({{standard_error}});
    return standard_error *
           (student_quantile(0.5 + 0.5 * confidence, freedom) + student_quantile(power, freedom));
}

} // namespace keel
