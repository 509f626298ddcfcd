#pragma once

#include "eval/ab/run/item_context.hpp"

#include <memory>
#include <span>

namespace keel::ab {

// Asks the questions of documents, and records an arm's answers. Documents run one after the other,
// or several at the same time in a batch.
class Questions {
  public:
    explicit Questions(ItemContext &context) : context_(context) {}
    ~Questions();

    // Each question is asked in a copy of the session. So each question starts from the cache after
    // the prompt. With kv.max_mib, all copies together would have to stay within one limit. So with
    // kv.max_mib, the prompt is read again for each question. If documents run in a batch,
    // task.at_once questions are answered at the same time.
    void run(const PlannedTask &task, const Place &place, size_t run,
             std::span<const Member> members);

  private:
    struct Asked;
    std::unique_ptr<Asked> ask(const Place &place, size_t run, const Member &member,
                               const Question &question,
                               const std::shared_ptr<Arms::Opened> &opened, bool copy);
    bool look_at_answer(const PlannedTask &task, Asked &asked) const;
    void write_answer(const PlannedTask &task, const Place &place, const Asked &asked);

    ItemContext &context_;
};

} // namespace keel::ab
