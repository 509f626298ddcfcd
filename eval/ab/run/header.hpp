#pragma once

#include "eval/ab/run/planned_task.hpp"

#include <span>

namespace keel::ab {

// The header of the results: RunOptions::header, and all that describes this run.
Header make_header(const Experiment &experiment, const RunOptions &options, Arms &arms,
                   std::span<const PlannedTask> tasks);

} // namespace keel::ab
