#include "eval/stats/bootstrap_t.hpp"

#include "eval/stats/finite.hpp"
#include "eval/stats/random.hpp"

#include <algorithm>
#include <limits>

namespace keel {
namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

// Draws one resample and returns (mean of the resample - mean) / standard error of the resample.
// The result is infinite if all numbers of the resample are equal.
double t_of_resample(std::span<const double> values, double mean, Xoshiro256 &random) {
    const auto n = static_cast<uint32_t>(values.size());
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; ++i) {
        const double distance = values[random.below(n)] - mean;
        sum += distance;
        squares += distance * distance;
    }
    const double count = n, centre = sum / count;
    const double variance = squares / count - centre * centre;
    if (variance <= 1e-14 * squares / count) // all numbers are equal, except for rounding
        return centre == 0 ? 0 : std::copysign(endless, centre);
    return centre / std::sqrt(variance / (count - 1));
}

} // namespace

BootstrapTInference::BootstrapTInference(std::span<const double> values, uint64_t resamples,
                                         uint64_t seed) {
    check_finite(values);
    const auto n = static_cast<double>(values.size());
    for (const double v : values) mean_ += v / n;
    double squares = 0;
    for (const double v : values) squares += (v - mean_) * (v - mean_);
    error_ = std::sqrt(squares / (n * (n - 1)));
    if (error_ < 1e-14 * std::abs(mean_)) error_ = 0; // all numbers are equal, except for rounding
    if (error_ == 0) return;
    Xoshiro256 random(seed);
    t_.resize(resamples);
    for (double &t : t_) t = t_of_resample(values, mean_, random);
    std::sort(t_.begin(), t_.end());
}

double BootstrapTInference::above(double value) const {
    if (error_ == 0) return mean_ > value ? 0 : 1;
    const auto found = std::lower_bound(t_.begin(), t_.end(), (mean_ - value) / error_);
    return static_cast<double>(t_.end() - found + 1) / static_cast<double>(t_.size() + 1);
}

double BootstrapTInference::below(double value) const {
    if (error_ == 0) return mean_ < value ? 0 : 1;
    const auto found = std::upper_bound(t_.begin(), t_.end(), (mean_ - value) / error_);
    return static_cast<double>(found - t_.begin() + 1) / static_cast<double>(t_.size() + 1);
}

Interval BootstrapTInference::at_tail(double tail) const {
    if (error_ == 0) return {mean_, mean_};
    const auto rank = static_cast<size_t>(tail * static_cast<double>(t_.size() + 1));
    if (rank == 0) return {-endless, endless};
    return {mean_ - t_[t_.size() - rank] * error_, mean_ - t_[rank - 1] * error_};
}

uint64_t resamples_needed(double confidence, uint64_t contrasts) {
    // The product is rounded, so we add one resample.
    return static_cast<uint64_t>(2 * static_cast<double>(contrasts) / (1 - confidence)) + 1;
}

double JoinedInference::above(double value) const {
    return std::max(first_->above(value), second_->above(value));
}

double JoinedInference::below(double value) const {
    return std::max(first_->below(value), second_->below(value));
}

Interval JoinedInference::at_tail(double tail) const {
    const Interval first = first_->at_tail(tail), second = second_->at_tail(tail);
    return {std::min(first.low, second.low), std::max(first.high, second.high)};
}

} // namespace keel
