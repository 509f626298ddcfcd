#include "eval/stats/wilson.hpp"

#include "eval/stats/distributions.hpp"
#include "eval/stats/finite.hpp"

#include <algorithm>

namespace keel {

Interval wilson_interval(double hits, double trials, double confidence) {
    check_finite({{hits, trials}});
    if (trials <= 0) return {0, 1};
    const double z2 = std::pow(normal_quantile(0.5 + 0.5 * confidence), 2), rate = hits / trials;
    const double centre = (hits + 0.5 * z2) / (trials + z2);
    const double reach = std::sqrt(z2) / (trials + z2) *
                         std::sqrt(std::max(0.0, rate * (1 - rate)) * trials + 0.25 * z2);
    return {std::clamp(centre - reach, 0.0, rate), std::clamp(centre + reach, rate, 1.0)};
}

} // namespace keel
