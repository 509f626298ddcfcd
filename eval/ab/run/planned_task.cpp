#include "eval/ab/run/planned_task.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace keel::ab {
namespace {

PlannedTask plan_task(const Task &task, const Experiment &experiment, const RunOptions &options,
                      Arms &arms, bool one_by_one) {
    PlannedTask t;
    t.task = &task;
    if (task.kind != TaskKind::speed) {
        t.items = make_task_items(task, arms.tokenizer(), *experiment.reference().config.model.path,
                                  experiment.form);
        t.documents = t.items->documents();
        t.last_metric = t.items->has_question() ? t.items->score_name() : "top1";
    } else {
        t.documents = task.at.size() * static_cast<size_t>(task.repeats);
        t.last_metric = "decode_ms_p99";
    }
    if (options.items > 0) t.documents = std::min(t.documents, static_cast<size_t>(options.items));
    t.one_by_one = one_by_one;
    if (t.items && (t.items->has_question() || one_by_one)) t.at_once = experiment.config.batch;
    if (!t.items) return t;
    t.longest = t.items->longest(t.documents);
    const int64_t context = arms.pipeline(0).context();
    const std::string &at = t.longest.whole_at;
    if (t.longest.whole > context)
        throw_at(task.where, ErrorKind::input,
                 "task '{}': {}prompts with their answers have up to {} tokens, but the full cache "
                 "holds {} (model.context); use shorter prompts, or a larger model.context",
                 task.name, at.empty() ? at : at + ": ", t.longest.whole, context);
    return t;
}

// Checks the experiment's `batch`. A batch needs tokens that are read one by one, in decode steps.
// Throws Error(input) if no task has such decode steps. Otherwise reports the tasks without such
// decode steps.
void check_batch(const std::vector<PlannedTask> &tasks, const Config &c,
                 const RunOptions &options) {
    if (c.batch == 1) return;
    std::vector<std::string> others;
    for (const PlannedTask &t : tasks) {
        if (t.at_once > 1) continue;
        others.push_back(
            t.items ? fmt::format("'{}' reads many tokens in each step, so it already reads the "
                                  "weights once for all of them",
                                  t.task->name)
                    : fmt::format("'{}' measures one sequence", t.task->name));
    }
    if (others.size() == tasks.size())
        throw_error(
            ErrorKind::input,
            "{}batch: expected a task that reads tokens one by one (answers, or continuations if "
            "an "
            "arm evicts during decode), because batch is {}; found none: {}; remove 'batch'",
            c.file.empty() ? "" : c.file.string() + ": ", c.batch, fmt::join(others, "; "));
    if (!options.say) return;
    for (const std::string &other : others)
        options.say(fmt::format("batch: {}; it runs one document at a time", other));
}

} // namespace

std::vector<PlannedTask> plan_tasks(const Experiment &experiment, const RunOptions &options,
                                    Arms &arms) {
    const bool one_by_one = std::any_of(experiment.runs.begin(), experiment.runs.end(),
                                        [](const Run &run) { return run.acts_in_decode; });
    std::vector<PlannedTask> tasks;
    for (const Task &task : experiment.config.tasks)
        tasks.push_back(plan_task(task, experiment, options, arms, one_by_one));
    check_batch(tasks, experiment.config, options);
    return tasks;
}

std::vector<Protocol> protocols_of(const PlannedTask &task, const Config &config) {
    return task.has_questions() ? config.protocols : std::vector{Protocol::question_blind};
}

std::string protocol_of(const PlannedTask &task, Protocol protocol) {
    return task.has_questions() ? protocol_name(protocol) : "";
}

} // namespace keel::ab
