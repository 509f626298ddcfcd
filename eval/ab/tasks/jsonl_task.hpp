#pragma once

#include "eval/ab/tasks/tasks.hpp"

namespace keel {

// A file of prompts with answers, one JSON object on each line: RULER's form {"input", "outputs":
// [...]} (optionally with "answer_prefix" and "index"), or LongBench's {"context", "input",
// "answers": [...]}. Throws Error(input) "FILE:LINE: ...".
std::unique_ptr<AbTaskItems> make_jsonl_items(const AbTask &task, const Tokenizer &tokenizer,
                                              const AbPromptForm &form);

// Shared by tasks with questions. Adds a question under a protocol: under question_blind to
// `shared`, because all questions of a document follow the same prompt; else as a unit of its own
// to `own`. All protocols see the same tokens.
void ab_add_question(const AbPromptTokens &tokens, AbProtocol protocol, AbUnit &shared,
                     AbQuestion asked, std::vector<AbUnit> &own);

} // namespace keel
