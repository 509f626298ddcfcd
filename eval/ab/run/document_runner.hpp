#pragma once

#include "eval/ab/run/continuations.hpp"
#include "eval/ab/run/questions.hpp"
#include "eval/ab/run/run_progress.hpp"

#include <span>
#include <string>

namespace keel::ab {

// Processes the documents of a task in all runs, with all seeds of each run. For each document,
// skips the runs whose items are finished.
class DocumentRunner {
  public:
    DocumentRunner(ItemContext &context, RunProgress &progress)
        : context_(context), progress_(progress), questions_(context), continuations_(context) {}

    // Runs `count` documents, beginning with document `first`. At most task.at_once units (prompts)
    // take steps together.
    void run(const PlannedTask &task, Protocol protocol, size_t first, size_t count);
    // Writes a warning if some expected answers have only one token. Under the protocol
    // whole_prompt, the only token of such an answer is computed before the eviction.
    void warn_of_short_answers(const PlannedTask &task);

  private:
    void run_members(const PlannedTask &task, const std::string &protocol,
                     std::span<const Member> members);

    ItemContext &context_;
    RunProgress &progress_;
    Questions questions_;
    Continuations continuations_;
};

} // namespace keel::ab
