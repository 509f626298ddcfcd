#pragma once

#include "eval/ab/run/planned_task.hpp"

#include <span>

namespace keel::ab {

// Makes the header of the results: RunOptions::header, with all facts that describe this run added.
Header make_header(const Experiment &experiment, const RunOptions &options, Arms &arms,
                   std::span<const PlannedTask> tasks);

} // namespace keel::ab
