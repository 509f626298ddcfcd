#pragma once

#include "eval/ab/tasks/tasks.hpp"

namespace keel {

// A file of prompts with answers, one JSON object on each line. Each has the form of RULER,
// {"input", "outputs": [...]} (optionally with "answer_prefix" and "index"), or of LongBench,
// {"context", "input", "answers": [...]}. Throws Error(input) "FILE:LINE: ...".
std::unique_ptr<AbTaskItems> make_jsonl_items(const AbTask &task, const Tokenizer &tokenizer,
                                              const AbPromptForm &form);

// Used by all tasks with questions. Adds a question under a protocol. Under question_blind it goes
// into `shared`, because all questions of a document follow the same prompt. Under the other
// protocols it becomes a unit of its own in `own`. The whole prompt has the same tokens under all
// protocols.
void ab_add_question(const AbPromptTokens &tokens, AbProtocol protocol, AbUnit &shared,
                     AbQuestion asked, std::vector<AbUnit> &own);

} // namespace keel
