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

namespace keel::ab {

// A question. It is asked after the context was read and the policy has evicted.
struct Question {
    std::string item; // unique within the task
    // Tokens that are read on the evicted cache: the part of the prompt after the eviction.
    std::vector<int32_t> ask;
    std::vector<std::string> expected;
    int64_t max_tokens = 0; // the most tokens of the answer
    double depth = -1;      // of the asked fact, 0 to 1; below 0: unknown
};

// A prompt, and what is measured after it: answers to questions, or a continuation.
struct Unit {
    std::string document;        // the cluster
    std::vector<int32_t> prompt; // the tokens until the policy is told that the prompt has ended
    std::vector<Question> questions; // each is asked on the cache as it is after the prompt
    // Instead of questions: the tokens that follow in the text. All but the last are fed, all but
    // the first are scored.
    std::vector<int32_t> continuation;
    // Context and question have other tokens if they are encoded as one text.
    bool split_changes_tokens = false;
};

// Upper bounds for the prompts of a task, with their questions.
struct Longest {
    // Tokens of the longest prompt without and with its longest possible answer.
    int64_t prompt = 0, whole = 0;
    std::string prompt_at,
        whole_at; // their places, "FILE:LINE"; empty if the prompts were generated
};

// A task's documents. Each is made when it is needed, with a tokenizer. All arms with this
// tokenizer get the same documents.
class TaskItems {
  public:
    virtual ~TaskItems() = default;
    virtual size_t documents() const = 0;
    virtual bool has_question() const = 0; // true if the protocols differ for this task
    // For the first `documents` documents. It may have to encode all of them.
    virtual Longest longest(size_t documents) const = 0;
    // `document` is below documents(). Under question_blind all questions follow one prompt. Under
    // the other protocols each question has a unit of its own.
    virtual std::vector<Unit> units(size_t document, Protocol protocol) const = 0;
    virtual std::string score_name() const = 0; // the metric of an answer: "hit", "f1"
    virtual double score(const std::string &answer,
                         const std::vector<std::string> &expected) const = 0;
    virtual std::string clean(const std::string &answer) const {
        return answer;
    } // as it is compared and recorded
    // True if the answer so far is complete.
    virtual bool ends(const std::string &) const { return false; }
};

// Runs `action`. Errors get the task's place and name in front.
template <typename Action> auto at_task(const Task &task, Action &&action) {
    try {
        return action();
    } catch (const Error &e) {
        throw Error(e.kind(),
                    fmt::format("{}: task '{}': {}", to_string(task.where), task.name, e.what()));
    }
}

// `model`: the model's folder or file; text files are looked for beside it. Throws Error(input)
// with the task's line for files that do not exist or do not fit. Not for speed tasks.
std::unique_ptr<TaskItems> make_task_items(const Task &task, const Tokenizer &tokenizer,
                                           const std::filesystem::path &model,
                                           const PromptForm &form = {});

// The files whose contents decide a task's items. Empty for tasks that need no files.
std::vector<std::filesystem::path> task_files(const Task &task, const std::filesystem::path &model);

} // namespace keel::ab
