#pragma once

#include "eval/ab/verdicts/summary.hpp"
#include "eval/stats/estimate.hpp"

#include <algorithm>
#include <vector>

namespace keel::ab {

// Computes the mean, the interval of the mean, and the quantiles of one cell.
CellSummary summarize_cell(const Cell &cell, const Statistics &statistics);

// Fills in the median and the quantiles of `values`. The values can be in any order.
template <typename Row> void fill_quantiles(Row &row, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    row.median = quantile(values, 0.5);
    row.p25 = quantile(values, 0.25);
    row.p75 = quantile(values, 0.75);
    row.p99 = quantile(values, 0.99);
}

} // namespace keel::ab
