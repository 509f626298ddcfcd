#pragma once

#include "base/error.hpp"
#include "eval/ab/plan/config.hpp"
#include "eval/ab/tasks/prompt_form.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace keel {

// What is asked once the context was read and evicted from.
struct AbQuestion {
    std::string item; // unique within the task
    std::vector<int32_t>
        ask; // taken in on the evicted cache: what of the prompt stands behind the eviction
    std::vector<std::string> expected;
    int64_t max_tokens = 0; // of the answer
    double depth = -1;      // of what has to be remembered; below 0: unknown
};

// A prompt, and what is measured behind its end.
struct AbUnit {
    std::string document;              // the cluster
    std::vector<int32_t> prompt;       // up to where the policy is told that the prompt has ended
    std::vector<AbQuestion> questions; // each is asked on the cache as it is behind the prompt
    std::vector<int32_t> continuation; // or, of the text that goes on: each but the last is fed,
                                       // each but the first is scored
    bool split_changes_tokens = false; // context and question apart have other tokens than together
};

// The longest prompts of a task, questions included: upper bounds.
struct AbLongest {
    int64_t prompt = 0,
            whole = 0; // tokens, without and with the longest answer that may be written
    std::string prompt_at,
        whole_at; // where these stand: "FILE:LINE"; empty: they were made to a length
};

// A task's documents, made one by one from a tokenizer: the same for all arms that share it.
class AbTaskItems {
  public:
    virtual ~AbTaskItems() = default;
    virtual size_t documents() const = 0;
    virtual bool has_question() const = 0; // so that the protocols differ
    // Of the first `documents`. May take as long as making their tokens takes.
    virtual AbLongest longest(size_t documents) const = 0;
    // `document` below documents(). Under question_blind all questions are asked behind one prompt,
    // else each has a unit of its own.
    virtual std::vector<AbUnit> units(size_t document, AbProtocol protocol) const = 0;
    virtual std::string score_name() const = 0; // of the metric of an answer: "hit", "f1"
    virtual double score(const std::string &answer,
                         const std::vector<std::string> &expected) const = 0;
    virtual std::string clean(const std::string &answer) const {
        return answer;
    }                                                              // as it is compared and recorded
    virtual bool ends(const std::string &) const { return false; } // the answer so far is complete
};

// Errors of what a task needs begin with the task's place and name.
template <typename Action> auto at_task(const AbTask &task, Action &&action) {
    try {
        return action();
    } catch (const Error &e) {
        throw Error(e.kind(),
                    fmt::format("{}: task '{}': {}", to_string(task.where), task.name, e.what()));
    }
}

// `model`: the model's folder or file, for texts that are looked for beside it. Throws Error(input)
// for files that are not there or do not fit, naming the task's line. Not for speed tasks.
std::unique_ptr<AbTaskItems> make_task_items(const AbTask &task, const Tokenizer &tokenizer,
                                             const std::filesystem::path &model,
                                             const AbPromptForm &form = {});

// The files whose contents decide about a task's items; none for those made up entirely.
std::vector<std::filesystem::path> task_files(const AbTask &task,
                                              const std::filesystem::path &model);

} // namespace keel
