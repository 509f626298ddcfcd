#include "eval/stats/power.hpp"

#include "eval/stats/distributions.hpp"
#include "eval/stats/finite.hpp"

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

} // namespace keel
