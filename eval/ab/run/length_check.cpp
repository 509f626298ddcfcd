#include "eval/ab/run/length_check.hpp"

#include "base/error.hpp"
#include "eval/ab/run/continuations.hpp"

#include <algorithm>

namespace keel::ab {

void check_lengths(const std::vector<PlannedTask> &tasks, const Experiment &experiment,
                   Arms &arms) {
    for (const PlannedTask &task : tasks) {
        if (task.items && !task.has_questions())
            at_task(*task.task, [&] { check_room_for_logits(task, arms); });
        const int64_t at =
            task.items ? 0 : *std::max_element(task.task->at.begin(), task.task->at.end());
        const int64_t longest = task.items ? task.longest.prompt : std::max<int64_t>(at, 1),
                      whole = task.items ? task.longest.whole : longest + task.task->decode;
        for (size_t r = 0; r < experiment.runs.size(); ++r)
            at_task(*task.task, [&] {
                const bool keeps_all = experiment.runs[r].keeps_all;
                const std::string &place =
                    keeps_all ? task.longest.whole_at : task.longest.prompt_at;
                try {
                    arms.check_prompt(r, keeps_all ? whole : longest, keeps_all);
                } catch (const Error &e) {
                    if (place.empty()) throw;
                    throw Error(e.kind(), fmt::format("{}: {}", place, e.what()));
                }
            });
    }
}

} // namespace keel::ab
