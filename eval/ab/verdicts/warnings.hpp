#pragma once

#include "eval/ab/verdicts/summary.hpp"

namespace keel::ab {

// Adds the warnings that follow from the numbers: nothing evicted, no memory saved, a reference
// that fails the task, items that only one arm has, too few documents, contradicting records, no
// noise floor.
void find_warnings(Summary &summary);

} // namespace keel::ab
