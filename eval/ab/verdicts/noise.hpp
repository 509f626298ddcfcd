#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace keel::ab {

// A noise floor. `size` is a difference, or a ratio A / B - 1 if `is_ratio` is true.
struct Floor {
    double size = 0;
    bool is_ratio = false;

    // The floor in the units of the contrast's effect.
    double of(const Contrast &contrast) const;
};

// The noise floors of an experiment, from two runs of the reference. A verdict never rests on an
// effect below the noise floor.
class Noise {
  public:
    Noise() = default;
    // Uses all second runs (reruns) in the table. Keeps no reference to the arguments.
    Noise(const Table &table, const Names &names, const Statistics &statistics);

    // The noise floor of a contrast. Effects up to the noise floor count as noise. For quality
    // metrics: the mean of |first run - second run| over the items. This mean bounds the change of
    // a metric's mean for any choice of documents. The floor is 0 if all numbers are equal to the
    // bit. For times and rates, which differ in every run: the end of the difference's interval
    // that is farther from 0. The floor is 0 if the reference ran only once.
    double of(const Contrast &contrast) const;
    // The contrasts of the reference's second run with its first run.
    const std::vector<Contrast> &contrasts() const { return contrasts_; }

  private:
    std::vector<Contrast> contrasts_;
    // Key: protocol, task, metric, length.
    std::map<std::tuple<std::string, std::string, std::string, int64_t>, Floor> floors_;
};

// The mean of |A - B| over the items that both cells have. If the metric is compared as a ratio and
// all numbers are above 0, the mean is computed from logarithms and is a ratio.
Floor mean_distance(const Cell &a, const Cell &b, const Names &names);

} // namespace keel::ab
