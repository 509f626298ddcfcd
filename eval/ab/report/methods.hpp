#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>
#include <vector>

namespace keel::ab {

// How the experiment was made, for the methods section of a paper.
struct Methods {
    std::vector<std::string> paragraphs;
    std::vector<std::string> references; // of the statistical methods that the paragraphs name
};
Methods methods_of(const Table &table, const Summary &summary);

} // namespace keel::ab
