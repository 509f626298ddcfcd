#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <string>
#include <vector>

namespace keel::ab {

// The planned contrasts of an experiment. The header of its results lists them (`contrasts` of the
// experiment's file). Without a list they are: each arm but the sweeps against the reference, on
// the primary metric. Contrasts at equal bytes are never planned.
class Plan {
  public:
    explicit Plan(const Table &table);

    const std::string &primary() const { return primary_; } // Summary::primary
    bool is_primary(const std::string &task, const std::string &metric) const;
    bool is_default() const { return contrasts_.empty(); } // no list
    // The kind, arms, task and metric of `contrast` must be set.
    bool has(const Contrast &contrast) const;
    // Is the pair of arms in the list, in either order? Without a list, all pairs are.
    bool lists(const std::string &a, const std::string &b) const;
    // Is the pair in the list as b against a?
    bool is_reversed(const std::string &a, const std::string &b) const;
    // Adds a note for each listed contrast that is not among `contrasts`. Adds a note if the
    // primary metric has sizes instead of tests.
    void note_missing(const std::vector<Contrast> &contrasts,
                      std::vector<std::string> &notes) const;

  private:
    std::string primary_;
    std::vector<PlannedContrast> contrasts_;
    std::vector<std::string> sweeps_;
};

} // namespace keel::ab
