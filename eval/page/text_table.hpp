#pragma once

#include <string>
#include <vector>

namespace keel {

// Three digits that mean something: 1234, 123.4, 12.34, 1.23.
std::string rate_text(double value);

// Rows of equally many cells under each other: the first column to the left, the others, numbers, to the right. Not empty.
std::string aligned_table(const std::vector<std::vector<std::string>> &rows);

} // namespace keel
