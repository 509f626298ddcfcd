#include "eval/stats/inference.hpp"

#include "eval/stats/distributions.hpp"
#include "eval/stats/finite.hpp"

#include <algorithm>

namespace keel {

std::optional<Interval> Inference::finite_interval(double confidence) const {
    const Interval found = interval(confidence);
    if (!std::isfinite(found.low) || !std::isfinite(found.high)) return std::nullopt;
    return found;
}

double Inference::p_outside(double low, double high) const {
    return std::min(1.0, 2 * std::min(above(high), below(low)));
}

double Inference::p_inside(double low, double high) const {
    return std::min(1.0, 2 * std::max(above(low), below(high)));
}

double Inference::p_above(double value) const { return std::min(1.0, 2 * above(value)); }

double Inference::p_below(double value) const { return std::min(1.0, 2 * below(value)); }

StudentInference::StudentInference(double centre, double error, double freedom)
    : centre_(centre), error_(error), freedom_(freedom) {
    check_finite({{centre, error}});
}

double StudentInference::above(double value) const {
    if (error_ == 0) return centre_ > value ? 0 : 1;
    const double t = (value - centre_) / error_;
    return std::isinf(freedom_) ? normal_cdf(t) : student_cdf(t, freedom_);
}

double StudentInference::below(double value) const {
    if (error_ == 0) return centre_ < value ? 0 : 1;
    const double t = (centre_ - value) / error_;
    return std::isinf(freedom_) ? normal_cdf(t) : student_cdf(t, freedom_);
}

Interval StudentInference::at_tail(double tail) const {
    if (error_ == 0) return {centre_, centre_};
    const double reach =
        -error_ * (std::isinf(freedom_) ? normal_quantile(tail) : student_quantile(tail, freedom_));
    return {centre_ - reach, centre_ + reach};
}

} // namespace keel
