#pragma once

#include "eval/ab/run/arms.hpp"
#include "eval/ab/run/run_options.hpp"
#include "eval/ab/tasks/tasks.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace keel::ab {

// A task with its documents, and with decisions on how it runs.
struct PlannedTask {
    const Task *task = nullptr;
    std::unique_ptr<TaskItems> items; // NULL for a speed task
    size_t documents = 0;             // number of documents; --items can lower this number
    Longest longest;                  // length bounds for these documents; not set for a speed task
    // For a continuation. True: tokens are fed one by one, in decode steps, because an arm evicts
    // in decode steps.
    bool one_by_one = true;
    size_t at_once = 1; // documents that take decode steps together
    // The name of the metric that is written last. An item that has this metric is complete.
    std::string last_metric;

    bool has_questions() const { return items && items->has_question(); }
};

// One of the units (prompts) that run at the same time.
struct Member {
    size_t index = 0; // index of this unit among the units that run at the same time
    // Number of the unit's document, and number of the first document that runs at the same time.
    size_t document = 0, first = 0;
    Unit unit;
};

// Plans the tasks of an experiment, in the order of its file. Throws Error(input) if the full cache
// cannot hold a prompt with its answer, or if no task can use the experiment's `batch`.
std::vector<PlannedTask> plan_tasks(const Experiment &experiment, const RunOptions &options,
                                    Arms &arms);

// Returns the protocols with which a task runs. A task without questions runs only once.
std::vector<Protocol> protocols_of(const PlannedTask &task, const Config &config);

// Returns the name of the protocol in records. Empty for a task without questions.
std::string protocol_of(const PlannedTask &task, Protocol protocol);

} // namespace keel::ab
