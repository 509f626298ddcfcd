#pragma once

#include "eval/stats/interval.hpp"

#include <optional>

namespace keel {

// The conclusions from a sample about a true effect: one-sided p-values for every value, and the
// intervals that belong to them. Both come from one method. So an interval of confidence 1 - a
// excludes a value if and only if the value's two-sided p is at most a.
class Inference {
  public:
    virtual ~Inference() = default;

    // The p of "the effect is `value` or less". It is small if the effect is above `value`.
    virtual double above(double value) const = 0;
    // The p of "the effect is `value` or more". It is small if the effect is below `value`.
    virtual double below(double value) const = 0;
    // The interval of the values that neither p excludes at the level `tail`, 0 to 0.5. An end may
    // be infinite.
    virtual Interval at_tail(double tail) const = 0;

    Interval interval(double confidence) const { return at_tail(0.5 * (1 - confidence)); }
    // Nothing if an end is infinite.
    std::optional<Interval> finite_interval(double confidence) const;

    // Two-sided p-values, to be compared with 1 - confidence. Each side is tested at half of this
    // level.

    // The p of "the effect is from low to high". It is small if the effect is outside.
    double p_outside(double low, double high) const;
    // The p of "the effect is low or less, or high or more", by two one-sided tests (TOST), which
    // must both reject. It is small if the effect is inside.
    double p_inside(double low, double high) const;
    // One-sided p-values, doubled, so that they are compared with the same level.
    double p_above(double value) const;
    double p_below(double value) const;
};

// An effect with a standard error, by Student's t. With an infinite `freedom`: the normal
// distribution. With an error of 0: a single point.
class StudentInference : public Inference {
  public:
    // `error` is at least 0, `freedom` is above 0. Throws Error(runtime) for a number that is not
    // finite.
    StudentInference(double centre, double error, double freedom);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    double centre_, error_, freedom_;
};

} // namespace keel
