#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A number with at least three digits: 1234, 123.4, 12.34, 1.23.
std::string rate_text(double value);

// "12 s", "34 min" or "5.6 h".
std::string duration_text(double seconds);

// Rows of cells. A row may have fewer cells than others.
using TableRows = std::vector<std::vector<std::string>>;

// Aligns the first column to the left. Aligns the others, which are numbers, to the right.
std::string aligned_table(const TableRows &rows);
// Aligns all columns to the left. Each row begins with `indent`.
std::string left_table(const TableRows &rows, std::string_view indent = "");

} // namespace keel
