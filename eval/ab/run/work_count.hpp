#pragma once

#include "eval/ab/run/cost.hpp"
#include "eval/ab/run/planned_task.hpp"

namespace keel::ab {

// Counts the tokens and steps of a task over all runs. If the task has documents, counts only
// `sampled` documents and scales the result to all documents. Cost::Row::seconds stays 0.
Cost::Row count_work(const PlannedTask &task, Protocol protocol, size_t sampled,
                     const Experiment &experiment, Arms &arms);

} // namespace keel::ab
