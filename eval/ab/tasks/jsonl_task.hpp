#pragma once

#include "eval/ab/tasks/tasks.hpp"

namespace keel::ab {

// Reads a file of prompts with expected answers. The file has one JSON object on each line, in one
// of two forms. RULER's form is {"input", "outputs": [...]}, optionally with "answer_prefix" and
// "index". LongBench's form is {"context", "input", "answers": [...]}. Throws Error(input)
// "FILE:LINE: ...".
std::unique_ptr<TaskItems> make_jsonl_items(const Task &task, const Tokenizer &tokenizer,
                                            const PromptForm &form);

// Adds a question to the units of a document. All tasks with questions use this function. With the
// protocol question_blind, the question goes into `shared`, because all questions of a document
// follow one prompt. With all other protocols, the question becomes a new unit in `own`. The prompt
// and the question together have the same tokens with all protocols.
void add_question(const PromptTokens &tokens, Protocol protocol, Unit &shared, Question asked,
                  std::vector<Unit> &own);

} // namespace keel::ab
