#pragma once

#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// Inference about the mean of independent numbers by bootstrap-t (Efron 1981): the distribution of
// (mean of a resample - mean) / standard error of the resample replaces Student's t distribution.
// So the intervals are asymmetric if the numbers are skewed. If `tail` is below 1 / (resamples +
// 1), both ends of at_tail(tail) are infinite.
class BootstrapTInference : public Inference {
  public:
    // `values` needs at least two numbers. `resamples` is at least 1. Throws Error(runtime) for a
    // number that is not finite.
    BootstrapTInference(std::span<const double> values, uint64_t resamples, uint64_t seed);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    // The mean and its standard error.
    double mean_ = 0, error_ = 0;
    std::vector<double> t_; // the t statistic of each resample, in rising order
};

// The fewest resamples with which BootstrapTInference gives finite intervals for `contrasts`
// comparisons. The comparisons share the error rate 1 - confidence equally.
uint64_t resamples_needed(double confidence, uint64_t contrasts);

// Joins two inferences about one effect. A value is excluded only if both inferences exclude the
// value. So each interval contains the intervals of both inferences.
class JoinedInference : public Inference {
  public:
    JoinedInference(std::shared_ptr<const Inference> first, std::shared_ptr<const Inference> second)
        : first_(std::move(first)), second_(std::move(second)) {}
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    std::shared_ptr<const Inference> first_, second_;
};

} // namespace keel
