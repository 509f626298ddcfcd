#pragma once

#include "eval/ab/run/planned_task.hpp"

namespace keel::ab {

// Finds prompts that are too long for an arm before the first item runs. An arm that keeps all must
// also hold the answer. Throws Error(input) with the task's place.
void check_lengths(const std::vector<PlannedTask> &tasks, const Experiment &experiment, Arms &arms);

} // namespace keel::ab
