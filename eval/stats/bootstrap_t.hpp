#pragma once

#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// The mean of independent numbers by the bootstrap of Student's t (bootstrap-t, Efron 1981). The
// quantiles of (resample's mean - mean) / resample's error replace those of Student's t, so the
// intervals follow the skewness of the numbers. For tails below 1 / (resamples + 1), at_tail() is
// infinite.
class BootstrapTInference : public Inference {
  public:
    // Needs at least two numbers and one resample. Throws Error(runtime) for a number that is not
    // finite.
    BootstrapTInference(std::span<const double> values, uint64_t resamples, uint64_t seed);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    double mean_ = 0, error_ = 0;
    std::vector<double> t_; // of the resamples, in rising order
};

// The fewest resamples with which intervals of that confidence have ends, each of `contrasts` at
// its share of 1 - confidence.
uint64_t resamples_needed(double confidence, uint64_t contrasts);

// Joins two inferences: a value is excluded if both exclude it. So its intervals reach to the
// farther ends.
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
