#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/equal_bytes.hpp"
#include "eval/ab/verdicts/looks.hpp"
#include "eval/ab/verdicts/verdict.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// All results of an experiment, computed once from its records. The terminal, summary.json and
// report.html all show this summary.
namespace keel::ab {

// The numbers of one cell, for display.
struct CellSummary {
    const Cell *cell = nullptr;
    uint64_t items = 0, clusters = 0;
    double mean = 0;
    // The interval of the mean. If all values are 0 or 1, the interval is Wilson's interval.
    // Wilson's interval is widened, because several items belong to one document.
    std::optional<Interval> interval;
    double median = 0, p25 = 0, p75 = 0, p99 = 0;
    // True if the cell is on the Pareto front. On the front, no other arm has at least the cell's
    // quality with at most the cell's bytes. For on_front, the bytes are the mean while items are
    // scored; for on_peak_front, the peak.
    bool on_front = false, on_peak_front = false;
};

// Speeds at one length (tokens in the cache).
struct SpeedRow {
    CellKey key;
    int64_t length = 0;
    uint64_t items = 0;
    double median = 0, p25 = 0, p75 = 0, p99 = 0;
};

struct Summary {
    Header header;
    std::string primary; // "task/metric"; in older results possibly the name of a task
    uint64_t records = 0;
    std::vector<CellSummary> cells;
    // Contrasts with the reference come first, followed by pairs of arms without the reference.
    // Each group has the order of the cells.
    std::vector<Contrast> contrasts;
    std::vector<Contrast> equal_bytes;
    std::vector<Apart> apart;
    std::vector<Contrast> noise; // the reference's second run compared with its first run
    std::vector<SpeedRow> speeds;
    std::vector<Warning> warnings; // recorded warnings, and warnings that the numbers cause
    // notes about comparisons, and about contrasts that were left out
    std::vector<std::string> notes;
};

// Computes the summary. `table` must outlive the summary. `looks`: see label_contrast(). Throws
// Error(input) if the table has no items.
Summary summarize(const Table &table, const Names &names, LookBook *looks = nullptr);

// The contents of summary.json. docs/reference/experiments.md describes summary.json.
nlohmann::ordered_json summary_json(const Summary &summary);

// The list of contrasts in summary.json.
nlohmann::ordered_json json_of_contrasts(const std::vector<Contrast> &contrasts);

// The margins of the planned contrasts as JSON. Example: {"hit": {"margin": 0.05, "unit": "points",
// "text": "5 points"}}.
nlohmann::ordered_json margins_json(const std::vector<Contrast> &contrasts);

// The text for the terminal: first the verdicts of the planned contrasts, then exploratory effects,
// then notes.
std::string summary_text(const Summary &summary);

// Contrasts as an aligned table. If no contrast is planned, the table has no columns for p and
// verdict.
std::string contrast_table(const std::vector<const Contrast *> &contrasts);

// If the reference's share of hits is below this limit, the results of policies mean little.
inline constexpr double reference_floor = 0.7;

} // namespace keel::ab
