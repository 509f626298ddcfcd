#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/equal_bytes.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// All results of an experiment, computed once from its records. The terminal, summary.json and
// report.html show them.
namespace keel {

// One cell in numbers.
struct AbCellSummary {
    const AbCell *cell = nullptr;
    uint64_t items = 0, clusters = 0;
    double mean = 0;
    std::optional<Interval> interval; // of the mean; Wilson's, widened for items that share
                                      // documents, where all are 0 or 1
    double median = 0, p25 = 0, p75 = 0, p99 = 0;
    // Is the cell on the Pareto front, so that no other arm has the same quality with fewer bytes?
    // By the bytes while items were scored, and by the peak.
    bool on_front = false, on_peak_front = false;
};

// Speeds by the length at which they were measured.
struct AbSpeedRow {
    AbCellKey key;
    int64_t length = 0;
    uint64_t items = 0;
    double median = 0, p25 = 0, p75 = 0, p99 = 0;
};

struct AbSummary {
    AbHeader header;
    uint64_t records = 0;
    std::vector<AbCellSummary> cells;
    std::vector<AbContrast>
        contrasts; // against the reference first, then pairs; each in the order of the cells
    std::vector<AbContrast> equal_bytes;
    std::vector<AbApart> apart;
    std::vector<AbContrast> noise; // the reference against itself
    std::vector<AbSpeedRow> speeds;
    std::vector<AbWarning> warnings; // recorded and found
    std::vector<std::string> notes;  // on what was done and what was left out
};

// `table` has to outlive the summary. Throws Error(input) where there is nothing to summarize.
AbSummary summarize_ab(const AbTable &table, const AbNames &names);

// summary.json; docs/reference/experiments.md says what is in it.
nlohmann::ordered_json ab_summary_json(const AbSummary &summary);

// The list of contrasts in it.
nlohmann::ordered_json ab_contrasts_json(const std::vector<AbContrast> &contrasts);

// What the terminal shows: the verdicts against the reference, of the primary task first; then what
// to know about them.
std::string ab_summary_text(const AbSummary &summary);

// Contrasts as an aligned table.
std::string ab_contrast_table(const std::vector<const AbContrast *> &contrasts);

// How the families of contrasts with sweeps end.
inline constexpr std::string_view ab_sweeps_family = "sweeps";

// A full cache below this share of hits makes what a policy does to them meaningless.
inline constexpr double ab_reference_floor = 0.7;

} // namespace keel
