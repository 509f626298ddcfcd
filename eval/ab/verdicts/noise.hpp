#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace keel::ab {

// A noise floor: a difference, or a ratio A / B - 1.
struct Floor {
    double size = 0;
    bool is_ratio = false;

    // In units of the contrast's effect.
    double of(const Contrast &contrast) const;
};

// The noise floor: the distance of the reference's second run from its first. No verdict may rest
// on effects below it.
class Noise {
  public:
    Noise() = default;
    // Uses all reruns in the table. Keeps no reference to `table`, `names` and `statistics`.
    Noise(const Table &table, const Names &names, const Statistics &statistics);

    // The noise floor; effects up to it count as noise. Quality metrics: the mean of |first -
    // second| over the items, which bounds the change of the mean for any choice of documents. It
    // is 0 if all are equal to the bit. Times and rates, which differ in every run: the end of the
    // difference's interval that is farther from 0. 0 if nothing was run twice.
    double of(const Contrast &contrast) const;
    // The second run against the first.
    const std::vector<Contrast> &contrasts() const { return contrasts_; }

  private:
    std::vector<Contrast> contrasts_;
    // By protocol, task, metric, length.
    std::map<std::tuple<std::string, std::string, std::string, int64_t>, Floor> floors_;
};

// The mean of |A - B| over the items that both have; if the metric is compared as a ratio and all
// numbers are above 0: by logarithms, as a ratio.
Floor mean_distance(const Cell &a, const Cell &b, const Names &names);

} // namespace keel::ab
