#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <string>
#include <vector>

namespace keel {

// Which contrasts of an experiment were planned. The header of its results lists them, as
// `contrasts` of the experiment's file. Without a list: each arm against the reference on the
// primary metric, but sweeps, which draw a curve. At equal bytes nothing is planned.
class AbPlan {
  public:
    explicit AbPlan(const AbTable &table);

    const std::string &primary() const { return primary_; } // AbSummary::primary
    bool is_primary(const std::string &task, const std::string &metric) const;
    bool is_default() const { return contrasts_.empty(); } // no list
    // Kind, arms, task and metric of `contrast` are set.
    bool has(const AbContrast &contrast) const;
    // Is the pair of arms in the list, in either order? Without a list, all pairs are.
    bool lists(const std::string &a, const std::string &b) const;
    // Is it in the list as b against a?
    bool is_reversed(const std::string &a, const std::string &b) const;
    // Adds a note for each listed contrast that is not among `contrasts`, and one if the primary
    // metric has sizes alone, and no tests.
    void note_missing(const std::vector<AbContrast> &contrasts,
                      std::vector<std::string> &notes) const;

  private:
    std::string primary_;
    std::vector<AbPlannedContrast> contrasts_;
    std::vector<std::string> sweeps_;
};

} // namespace keel
