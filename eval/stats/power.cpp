#include "eval/stats/power.hpp"

#include "eval/stats/distributions.hpp"
#include "eval/stats/finite.hpp"
#include "eval/stats/paired_rates.hpp"

#include <cmath>

namespace keel {

double minimal_detectable_effect(double standard_error, double freedom, double confidence,
                                 double power) {
    check_finite({{standard_error}});
    if (std::isinf(freedom))
        return standard_error * (normal_quantile(0.5 + 0.5 * confidence) + normal_quantile(power));
    return standard_error *
           (student_quantile(0.5 + 0.5 * confidence, freedom) + student_quantile(power, freedom));
}

std::optional<uint64_t>
documents_needed(uint64_t n, double level,
                 const std::function<std::shared_ptr<const Inference>(uint64_t)> &differing) {
    const auto enough = [&](uint64_t k) { return differing(k)->p_outside(0, 0) <= level; };
    if (n == 0 || !enough(n)) return std::nullopt;
    uint64_t few = 0, many = n;
    while (many - few > 1) {
        const uint64_t middle = few + (many - few) / 2;
        (enough(middle) ? many : few) = middle;
    }
    return many;
}

double share_for(uint64_t n, uint64_t least) {
    // The probability that fewer than `least` documents differ.
    const auto misses = [&](double share) {
        double term = std::pow(1 - share, static_cast<double>(n)), sum = 0;
        for (uint64_t i = 0; i < least; ++i) {
            sum += term;
            term *= static_cast<double>(n - i) / static_cast<double>(i + 1) * share / (1 - share);
        }
        return sum;
    };
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
        const double middle = 0.5 * (low + high);
        (misses(middle) > 0.2 ? low : high) = middle;
    }
    return high;
}

double power_of_t(double effect, double spread, double documents, double freedom, double level,
                  double wider) {
    check_finite({{effect, spread}});
    if (documents < 2 || freedom <= 0) return 0;
    if (spread <= 0) return 1;
    const double size = effect * std::sqrt(documents) / spread;
    return student_cdf(size - wider * student_quantile(1 - 0.5 * level, freedom), freedom);
}

double power_of_score(double effect, double square, double documents, double level) {
    check_finite({{effect, square}});
    // If the true difference is 0, the variance is `square`. If the true difference is `effect`,
    // the variance is smaller: square - effect^2.
    const double excess =
        effect * std::sqrt(documents) - normal_quantile(1 - 0.5 * level) * std::sqrt(square);
    const double variance = square - effect * effect;
    if (variance <= 1e-12) return excess >= 0 ? 1 : 0;
    return normal_cdf(excess / std::sqrt(variance));
}

double power_of_non_inferiority(double margin, double square, double step, double documents,
                                double level) {
    check_finite({{margin, square, step}});
    if (margin <= 0 || square <= 0) return 0;
    // Assume that gains and losses are exactly as large as expected. The score at the margin is
    // then margin * sqrt(documents / variance), with the variance of the test itself. This variance
    // can be computed from the p of any number of documents. The number `sample` keeps this p far
    // from 0.
    const double sample = 9 * square / (margin * margin);
    const double part = 0.5 * square / step * sample;
    const double p = PairedRateInference::of_shares(part, part, sample, step)->above(-margin);
    const double variance = margin * margin * sample / std::pow(normal_quantile(p), 2);
    const double excess =
        margin * std::sqrt(documents) - normal_quantile(1 - 0.5 * level) * std::sqrt(variance);
    return normal_cdf(excess / std::sqrt(square));
}

std::optional<uint64_t> documents_for_power(double power,
                                            const std::function<double(double)> &power_at) {
    constexpr uint64_t most = 1'000'000'000;
    uint64_t low = 1, high = 2;
    while (power_at(static_cast<double>(high)) < power) {
        if (high >= most) return std::nullopt;
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        (power_at(static_cast<double>(middle)) >= power ? high : low) = middle;
    }
    return high;
}

} // namespace keel
