#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>

namespace keel {

// What the page is drawn from, as JSON. `level` says what is left out to make it smaller, each with
// what the levels before it leave out: 0 nothing, 1 keep maps, 2 timelines, 3 curves and heat maps,
// 4 pairs of arms. Notes of the data name what is left out.
std::string ab_report_data(const AbTable &table, const AbSummary &summary, int level);
inline constexpr int ab_report_levels = 5;

} // namespace keel
