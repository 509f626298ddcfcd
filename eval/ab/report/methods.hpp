#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>
#include <vector>

namespace keel::ab {

// Describes how the experiment was made, for the methods section of a paper.
struct Methods {
    std::vector<std::string> paragraphs;
    // References for the statistical methods that the paragraphs name.
    std::vector<std::string> references;
};
Methods methods_of(const Table &table, const Summary &summary);

} // namespace keel::ab
