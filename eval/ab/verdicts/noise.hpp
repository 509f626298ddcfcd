#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace keel {

// A noise floor: a difference, or a ratio A / B - 1.
struct AbFloor {
    double size = 0;
    bool is_ratio = false;

    // In units of the contrast's effect.
    double of(const AbContrast &contrast) const;
};

// The noise floor: the distance of the reference's second run from its first. No verdict may rest
// on effects below it.
class AbNoise {
  public:
    AbNoise() = default;
    // Uses all reruns in the table. Keeps no reference to `table`, `names` and `statistics`.
    AbNoise(const AbTable &table, const AbNames &names, const AbStatistics &statistics);

    // The noise floor; effects up to it count as noise. Quality metrics: the mean of |first -
    // second| over the items, which bounds the change of the mean for any choice of documents. It
    // is 0 if all are equal to the bit. Times and rates, which differ in every run: the end of the
    // difference's interval that is farther from 0. 0 if nothing was run twice.
    double of(const AbContrast &contrast) const;
    // The second run against the first.
    const std::vector<AbContrast> &contrasts() const { return contrasts_; }

  private:
    std::vector<AbContrast> contrasts_;
    // By protocol, task, metric, length.
    std::map<std::tuple<std::string, std::string, std::string, int64_t>, AbFloor> floors_;
};

// The mean of |A - B| over the items that both have; if the metric is compared as a ratio and all
// numbers are above 0: by logarithms, as a ratio.
AbFloor ab_mean_distance(const AbCell &a, const AbCell &b, const AbNames &names);

} // namespace keel
