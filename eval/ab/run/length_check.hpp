#pragma once

#include "eval/ab/run/planned_task.hpp"

namespace keel::ab {

// Checks before the first item that no prompt is too long for an arm. An arm that evicts nothing
// must also have room for the answer. Throws Error(input) with the task's place.
void check_lengths(const std::vector<PlannedTask> &tasks, const Experiment &experiment, Arms &arms);

} // namespace keel::ab
