#pragma once

#include "eval/ab/verdicts/summary.hpp"

namespace keel::ab {

// Adds the warnings that follow from the numbers. Examples: nothing was evicted, no memory was
// saved, the reference fails the task, an item is missing in an arm, there are too few documents,
// records contradict each other, there is no noise floor.
void find_warnings(Summary &summary);

} // namespace keel::ab
