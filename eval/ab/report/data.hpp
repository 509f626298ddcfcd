#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace keel {

// What the page is drawn from. `level`: how much has to go for it to stay small, 0: nothing; 1: keep maps; 2: timelines as well; 3: curves
// and heat maps as well; 4: pairs of arms as well. What went is said in the notes.
nlohmann::ordered_json ab_report_data(const AbTable &table, const AbSummary &summary, int level);
inline constexpr int ab_report_levels = 5;

// The page's own style and script.
extern const std::string_view ab_report_style;
extern const std::string_view ab_report_charts; // what draws
extern const std::string_view ab_report_script; // what fills the page

} // namespace keel
