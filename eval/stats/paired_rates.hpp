#pragma once

#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>

namespace keel {

// Counts of pairs of yes and no: the answer of the first and of the second.
struct PairedCounts {
    uint64_t both = 0, first_only = 0, second_only = 0, neither = 0;
    uint64_t total() const { return both + first_only + second_only + neither; }
};

// The difference of two paired rates (first - second), by the score test of Tango (1998). For a
// difference of 0 it is McNemar's test. Its intervals stay wide if few or no pairs differ, and stay
// within [-1, 1].
class PairedRateInference : public Inference {
  public:
    explicit PairedRateInference(const PairedCounts &counts); // needs at least one pair
    // Shares: documents differ by parts, `gain` and `loss` in sum, of `documents`. A part of `step`
    // counts as a pair that differs.
    static std::shared_ptr<const PairedRateInference> of_shares(double gain, double loss,
                                                                double documents, double step);
    double above(double value) const override;
    double below(double value) const override;
    Interval at_tail(double tail) const override;

  private:
    // Nearly normal if `difference` is true; it falls as `difference` rises.
    double score(double difference) const;
    double first_only_, second_only_, total_;
    double step_ = 1;
};

} // namespace keel
