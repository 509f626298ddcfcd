#pragma once

#include "eval/ab/run/arms.hpp"
#include "eval/ab/run/run_options.hpp"
#include "eval/ab/tasks/tasks.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace keel::ab {

// A task with its items.
struct PlannedTask {
    const Task *task = nullptr;
    std::unique_ptr<TaskItems> items; // NULL for a speed task
    size_t documents = 0;             // after --items
    Longest longest;                  // of these documents; not set for a speed task
    // continuation: tokens are fed in decode steps, because an arm evicts in decode steps.
    bool one_by_one = true;
    size_t at_once = 1;      // documents that take decode steps together
    std::string last_metric; // the metric that is written last; an item that has it is complete

    bool has_questions() const { return items && items->has_question(); }
};

// One of the units that run side by side.
struct Member {
    size_t index = 0;               // index among these units
    size_t document = 0, first = 0; // first: the first of the documents that run side by side
    Unit unit;
};

// The tasks of an experiment, in the order of its file. Throws Error(input) if the full cache
// cannot hold a prompt with its answer, or if no task can use the experiment's `batch`.
std::vector<PlannedTask> plan_tasks(const Experiment &experiment, const RunOptions &options,
                                    Arms &arms);

// The protocols under which a task runs. A task without questions runs once.
std::vector<Protocol> protocols_of(const PlannedTask &task, const Config &config);

// The name of the protocol in records; empty for a task without questions.
std::string protocol_of(const PlannedTask &task, Protocol protocol);

} // namespace keel::ab
