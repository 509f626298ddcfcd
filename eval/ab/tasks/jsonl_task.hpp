#pragma once

#include "eval/ab/tasks/tasks.hpp"

namespace keel::ab {

// A file of prompts with answers, one JSON object on each line. Each has the form of RULER,
// {"input", "outputs": [...]} (optionally with "answer_prefix" and "index"), or of LongBench,
// {"context", "input", "answers": [...]}. Throws Error(input) "FILE:LINE: ...".
std::unique_ptr<TaskItems> make_jsonl_items(const Task &task, const Tokenizer &tokenizer,
                                            const PromptForm &form);

// Used by all tasks with questions. Adds a question under a protocol. Under question_blind it goes
// into `shared`, because all questions of a document follow the same prompt. Under the other
// protocols it becomes a unit of its own in `own`. The whole prompt has the same tokens under all
// protocols.
void add_question(const PromptTokens &tokens, Protocol protocol, Unit &shared, Question asked,
                  std::vector<Unit> &own);

} // namespace keel::ab
