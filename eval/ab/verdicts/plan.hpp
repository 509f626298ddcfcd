#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <string>
#include <vector>

namespace keel::ab {

// The planned contrasts of an experiment: the contrasts that get a verdict. The key `contrasts` in
// the experiment's file lists the planned contrasts. The header of the results has the same list.
// If there is no list, each arm except the sweeps is compared with the reference on the primary
// metric. Contrasts at equal bytes are never planned.
class Plan {
  public:
    explicit Plan(const Table &table);

    const std::string &primary() const { return primary_; } // Summary::primary
    bool is_primary(const std::string &task, const std::string &metric) const;
    bool is_default() const { return contrasts_.empty(); } // true if there is no list
    // True if the contrast is planned. The contrast's kind, arms, task and metric must be set.
    bool has(const Contrast &contrast) const;
    // True if the pair of arms is in the list, in either order, or if there is no list.
    bool lists(const std::string &a, const std::string &b) const;
    // True if the list has the pair in the order (b, a).
    bool is_reversed(const std::string &a, const std::string &b) const;
    // Adds a note for each listed contrast that is missing in `contrasts`. Adds another note if the
    // primary metric has a size instead of a test (Contrast::is_size).
    void note_missing(const std::vector<Contrast> &contrasts,
                      std::vector<std::string> &notes) const;

  private:
    std::string primary_;
    std::vector<PlannedContrast> contrasts_;
    std::vector<std::string> sweeps_;
};

} // namespace keel::ab
