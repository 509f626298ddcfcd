#pragma once

#include "eval/stats/interval.hpp"

#include <optional>

namespace keel {

// An inference about a true effect from a sample. An inference gives one-sided p-values for every
// value of the effect, and intervals. The same method computes the p-values and the intervals. So
// an interval of confidence 1 - a excludes a value if and only if the two-sided p of this value is
// at most a.
class Inference {
  public:
    virtual ~Inference() = default;

    // The p-value of the null hypothesis "the effect is at most `value`". The p-value is small if
    // the effect is probably above `value`.
    virtual double above(double value) const = 0;
    // The p-value of the null hypothesis "the effect is at least `value`". The p-value is small if
    // the effect is probably below `value`.
    virtual double below(double value) const = 0;
    // The interval of all values for which above() and below() are both greater than `tail`. `tail`
    // is from 0 to 0.5. An end of the interval can be infinite.
    virtual Interval at_tail(double tail) const = 0;

    Interval interval(double confidence) const { return at_tail(0.5 * (1 - confidence)); }
    // Returns nullopt if an end of the interval is infinite.
    std::optional<Interval> finite_interval(double confidence) const;

    // The functions below return p-values that are compared with 1 - confidence.

    // The two-sided p-value of the null hypothesis "the effect is from `low` to `high`". The
    // p-value is small if the effect is probably outside this range.
    double p_outside(double low, double high) const;
    // The p-value of the null hypothesis "the effect is at most `low` or at least `high`". The
    // p-value is small if the effect is probably inside the range. The method is two one-sided
    // tests (TOST), which must both reject.
    double p_inside(double low, double high) const;
    // One-sided p-values, which are doubled. So a doubled p-value can be compared with the level of
    // a two-sided p-value.
    double p_above(double value) const;
    double p_below(double value) const;
};

// Inference about an effect with a known standard error, by Student's t distribution. With infinite
// degrees of freedom, Student's t distribution is the normal distribution. With a standard error of
// 0, each interval is a single point.
class StudentInference : public Inference {
  public:
    // `centre` is the estimate of the effect. `error` is the standard error of the estimate (at
    // least 0). `freedom` is the number of degrees of freedom (above 0). Throws Error(runtime) if
    // `centre` or `error` is not finite.
    StudentInference(double centre, double error, double freedom);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    double centre_, error_, freedom_;
};

} // namespace keel
