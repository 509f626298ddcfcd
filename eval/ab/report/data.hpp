#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <nlohmann/json_fwd.hpp>

namespace keel {

// What the page is drawn from. `level`: how much has to go for it to stay small, 0: nothing; 1: keep maps; 2: timelines as well; 3: curves
// and heat maps as well; 4: pairs of arms as well. What went is said in the notes.
nlohmann::ordered_json ab_report_data(const AbTable &table, const AbSummary &summary, int level);
inline constexpr int ab_report_levels = 5;

} // namespace keel
