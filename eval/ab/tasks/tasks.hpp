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

// A question. The model gets the question after two events: the model has read the context, and the
// policy has evicted.
struct Question {
    std::string item; // name of the item, unique within the task
    // The part of the prompt that the model reads after the eviction.
    std::vector<int32_t> ask;
    std::vector<std::string> expected;
    int64_t max_tokens = 0; // limit for the tokens of the answer
    double depth = -1;      // place of the asked fact in the context, 0 to 1; below 0: unknown
};

// A prompt, and the measurement after it: either answers to questions, or a continuation.
struct Unit {
    std::string document; // id of the document; documents are the clusters of the statistics
    // The tokens before the eviction. After these tokens the policy gets the event "end of the
    // prompt".
    std::vector<int32_t> prompt;
    std::vector<Question> questions; // each question starts from the cache after the prompt
    // Used instead of questions: the tokens that follow the prompt in the text. The model reads all
    // tokens except the last one. All tokens except the first one are scored.
    std::vector<int32_t> continuation;
    // True if the tokens differ when context and question are encoded as one text.
    bool split_changes_tokens = false;
};

// Upper bounds for the lengths of the prompts of a task. A prompt includes its question.
struct Longest {
    // Tokens of the longest prompt, and of the longest prompt with its longest possible answer.
    int64_t prompt = 0, whole = 0;
    // The places of these two prompts, "FILE:LINE". Empty if the prompts were generated.
    std::string prompt_at, whole_at;
};

// The documents of a task. units() makes each document with a tokenizer, when the document is
// needed. All arms with this tokenizer get the same documents.
class TaskItems {
  public:
    virtual ~TaskItems() = default;
    virtual size_t documents() const = 0;
    virtual bool has_question() const = 0; // if false, the task has the same results under all
                                           // protocols
    // The upper bounds for the first `documents` documents. If necessary, the function encodes all
    // of these documents.
    virtual Longest longest(size_t documents) const = 0;
    // Makes a document. `document` is from 0 to documents() - 1. With the protocol question_blind,
    // all questions follow one prompt. With all other protocols, each question has a unit of its
    // own.
    virtual std::vector<Unit> units(size_t document, Protocol protocol) const = 0;
    virtual std::string score_name() const = 0; // name of the answers' metric: "hit", "f1"
    virtual double score(const std::string &answer,
                         const std::vector<std::string> &expected) const = 0;
    // Returns the part of the answer that is compared and recorded.
    virtual std::string clean(const std::string &answer) const { return answer; }
    // True if this text, the answer so far, is a complete answer.
    virtual bool ends(const std::string &) const { return false; }
};

// Runs `action`. If `action` throws an Error, puts the task's place and name before the message.
template <typename Action> auto at_task(const Task &task, Action &&action) {
    try {
        return action();
    } catch (const Error &e) {
        throw Error(e.kind(),
                    fmt::format("{}: task '{}': {}", to_string(task.where), task.name, e.what()));
    }
}

// Makes the documents of a task. `model` is the model's folder or file; the function looks for text
// files next to the model. Throws Error(input) with the place of the task if a file does not exist
// or does not fit the task. Do not call this function for speed tasks, because speed tasks have no
// documents.
std::unique_ptr<TaskItems> make_task_items(const Task &task, const Tokenizer &tokenizer,
                                           const std::filesystem::path &model,
                                           const PromptForm &form = {});

// The files whose contents determine a task's items. Empty if the task reads no files.
std::vector<std::filesystem::path> task_files(const Task &task, const std::filesystem::path &model);

} // namespace keel::ab
