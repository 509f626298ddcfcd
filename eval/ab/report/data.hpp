#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>

namespace keel::ab {

// The data of the page, as JSON. A higher `level` makes it smaller by leaving more out. 0: nothing;
// 1: keep maps and kept tokens; 2: also timelines; 3: also curves and heat maps; 4: also pairs of
// arms; 5: also the numbers of single items. Notes in the data name the parts that are left out.
std::string report_data(const Table &table, const Names &names, const Summary &summary, int level);
inline constexpr int report_levels = 6;

} // namespace keel::ab
