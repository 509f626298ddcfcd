#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace keel {

// How far a reference is from its own second run: what no verdict may rest on.
class AbNoise {
  public:
    AbNoise() = default;
    // Of all reruns in a table; it, `names` and `statistics` are not kept.
    AbNoise(const AbTable &table, const AbNames &names, const AbStatistics &statistics);

    // Effects up to here are noise. Qualities: the mean distance of an item from itself, which is
    // what the mean may have moved by at most, whichever documents were drawn; 0 where all are
    // equal to the bit. Times and rates, which differ in every run: as far from nothing as the
    // interval reaches. 0 where nothing was run again.
    double of(const AbContrast &contrast) const;
    const std::vector<AbContrast> &contrasts() const { return contrasts_; } // again against first

  private:
    std::vector<AbContrast> contrasts_;
    // By protocol, task, metric, length.
    std::map<std::tuple<std::string, std::string, std::string, int64_t>, double> floors_;
};

// The mean distance of A's items from B's, of those that both have; in the units of an effect of
// the metric (logarithms for ratios).
double ab_mean_distance(const AbCell &a, const AbCell &b, const AbNames &names);

} // namespace keel
