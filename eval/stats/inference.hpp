#pragma once

#include "eval/stats/interval.hpp"

#include <optional>

namespace keel {

// What a sample says about a true effect: one-sided p-values of every value, and the intervals that
// belong to them. Both come from one method, so an interval of confidence 1 - a excludes a value
// exactly if the two-sided p of the value is at most a.
class Inference {
  public:
    virtual ~Inference() = default;

    // p of "the effect is `value` or less": small if the effect is above it.
    virtual double above(double value) const = 0;
    // p of "the effect is `value` or more": small if the effect is below it.
    virtual double below(double value) const = 0;
    // The values that neither p excludes at `tail`, 0 to 0.5. An end may be infinite.
    virtual Interval at_tail(double tail) const = 0;

    Interval interval(double confidence) const { return at_tail(0.5 * (1 - confidence)); }
    // Nothing if an end is infinite.
    std::optional<Interval> finite_interval(double confidence) const;

    // Two-sided p-values, for tests at 1 - confidence. Each side is tested at half of it.
    // Of "the effect is from low to high": small if it is outside.
    double p_outside(double low, double high) const;
    // Of "the effect is low or less, or high or more": two one-sided tests (TOST), both of which
    // have to reject. Small if the effect is inside.
    double p_inside(double low, double high) const;
    // One side alone, doubled so that it is compared with the same level.
    double p_above(double value) const;
    double p_below(double value) const;
};

// An effect with a standard error and Student's t. An infinite `freedom` is the normal
// distribution. An error of 0 is a point.
class StudentInference : public Inference {
  public:
    // `error` at least 0, `freedom` above 0. Throws Error(runtime) for a number that is not finite.
    StudentInference(double centre, double error, double freedom);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    double centre_, error_, freedom_;
};

} // namespace keel
