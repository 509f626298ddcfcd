#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Writes a number with at least three digits: 1234, 123.4, 12.34, 1.23.
std::string rate_text(double value);

// Writes a duration: "12 s", "34 min" or "5.6 h".
std::string duration_text(double seconds);

// The rows of a table, each a list of cells. The rows can have different numbers of cells.
using TableRows = std::vector<std::vector<std::string>>;

// Makes a table. The first column is aligned to the left. All columns after the first have numbers
// and are aligned to the right.
std::string aligned_table(const TableRows &rows);
// Makes a table with all columns aligned to the left. Each row begins with `indent`.
std::string left_table(const TableRows &rows, std::string_view indent = "");

} // namespace keel
