#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Three digits that mean something: 1234, 123.4, 12.34, 1.23.
std::string rate_text(double value);

// "12 s", "34 min", "5.6 h".
std::string duration_text(double seconds);

// Rows as columns, two spaces between them. A row may have fewer cells than others.
using TableRows = std::vector<std::vector<std::string>>;

// Aligns the first column to the left, and the others, which are numbers, to the right.
std::string aligned_table(const TableRows &rows);
// Aligns all columns to the left. Each row begins with `indent`.
std::string left_table(const TableRows &rows, std::string_view indent = "");

} // namespace keel
