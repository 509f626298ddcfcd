#include "eval/stats/paired_rates.hpp"

#include "eval/stats/distributions.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

PairedRateInference::PairedRateInference(const PairedCounts &c)
    : first_only_(static_cast<double>(c.first_only)),
      second_only_(static_cast<double>(c.second_only)), total_(static_cast<double>(c.total())) {}

std::shared_ptr<const PairedRateInference>
PairedRateInference::of_shares(double gain, double loss, double documents, double step) {
    auto out = std::make_shared<PairedRateInference>(PairedCounts{});
    out->first_only_ = gain / step;
    out->second_only_ = loss / step;
    out->total_ = documents;
    out->step_ = step;
    return out;
}

double PairedRateInference::score(double difference) const {
    const double d = difference / step_;
    // a difference of more than all documents is impossible
    if (std::abs(d) > 1) return std::copysign(HUGE_VAL, -d);
    const double n = total_, b = first_only_, c = second_only_;
    // The maximum-likelihood estimate of the rate of "second only", if the true difference is d.
    const double linear = (2 * n - b + c) * d - b - c;
    const double discriminant = linear * linear + 8 * n * c * d * (1 - d);
    const double rate = (std::sqrt(std::max(0.0, discriminant)) - linear) / (4 * n);
    const double variance = n * (2 * rate + d * (1 - d)), distance = b - c - n * d;
    // A variance that comes only from rounding counts as 0.
    if (variance > 1e-12 * n) return distance / std::sqrt(variance);
    return std::abs(distance) <= 1e-9 * n ? 0 : std::copysign(HUGE_VAL, distance);
}

double PairedRateInference::above(double value) const { return normal_cdf(-score(value)); }

double PairedRateInference::below(double value) const { return normal_cdf(score(value)); }

Interval PairedRateInference::at_tail(double tail) const {
    const double effect = step_ * (first_only_ - second_only_) / total_,
                 reach = -normal_quantile(tail);
    // Finds an end of the interval by bisection. The end is between a difference inside of the
    // interval and the difference `far`, which can be outside.
    const auto end = [&](double far) {
        double inside = effect, outside = far;
        if (std::abs(score(far)) <= reach) return far;
        for (int i = 0; i < 100; ++i) {
            const double middle = 0.5 * (inside + outside);
            if (middle == inside || middle == outside) break;
            (std::abs(score(middle)) <= reach ? inside : outside) = middle;
        }
        return inside;
    };
    return {end(-step_), end(step_)};
}

} // namespace keel
