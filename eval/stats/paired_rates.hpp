#pragma once

#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>

namespace keel {

// Counts of pairs of yes-or-no results. Each pair has a result of the first arm and a result of the
// second arm. `first_only` counts the pairs with yes in the first arm and no in the second arm.
struct PairedCounts {
    uint64_t both = 0, first_only = 0, second_only = 0, neither = 0;
    uint64_t total() const { return both + first_only + second_only + neither; }
};

// Inference about the difference of two paired rates (first - second), by the score test of Tango
// (1998). For a difference of 0, Tango's test is McNemar's test. The intervals stay wide if few or
// no pairs differ, and always stay within [-1, 1].
class PairedRateInference : public Inference {
  public:
    explicit PairedRateInference(const PairedCounts &counts); // needs at least one pair
    // Makes an inference for results that are shares from 0 to 1 instead of yes or no. `gain` is
    // the sum of the positive differences of all documents. `loss` is the sum of the absolute
    // values of the negative differences. `documents` is the number of documents. A difference of
    // `step` counts as one pair that differs.
    static std::shared_ptr<const PairedRateInference> of_shares(double gain, double loss,
                                                                double documents, double step);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    // The test statistic of the null hypothesis "the true difference is `difference`". If this
    // hypothesis is true, the statistic has nearly a standard normal distribution. The statistic
    // falls as `difference` rises.
    double score(double difference) const;
    double first_only_, second_only_, total_;
    double step_ = 1;
};

} // namespace keel
