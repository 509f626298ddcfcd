#pragma once

#include "eval/ab/run/continuations.hpp"
#include "eval/ab/run/questions.hpp"
#include "eval/ab/run/run_progress.hpp"

#include <span>
#include <string>

namespace keel::ab {

// Takes documents of a task through all runs, with all their seeds. A run whose items are finished
// is skipped.
class DocumentRunner {
  public:
    DocumentRunner(ItemContext &context, RunProgress &progress)
        : context_(context), progress_(progress), questions_(context), continuations_(context) {}

    // Runs `count` documents from `first` on. Each step takes at most task.at_once of their units.
    void run(const PlannedTask &task, Protocol protocol, size_t first, size_t count);
    // Warns of answers of one token. Under whole_prompt they are computed before the eviction.
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
