#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>

namespace keel::ab {

// Returns the data of the page as JSON. A higher `level` leaves out more parts, so that the data is
// smaller. Level 0 leaves out nothing. Level 1 leaves out keep maps and kept tokens. Each higher
// level leaves out one more kind of data: level 2 timelines, level 3 curves and heat maps, level 4
// pairs of arms, level 5 the numbers of single items. Notes in the data name the parts that are
// left out.
std::string report_data(const Table &table, const Names &names, const Summary &summary, int level);
inline constexpr int report_levels = 6;

} // namespace keel::ab
