#pragma once

#include "eval/ab/tasks/tasks.hpp"

namespace keel {

// A file of prompts with answers, a JSON object a line: RULER's form {"input", "outputs": [...]}
// (with "answer_prefix" and "index" where there are such), or LongBench's {"context", "input",
// "answers": [...]}. Throws Error(input) "FILE:LINE: ...".
std::unique_ptr<AbTaskItems> make_jsonl_items(const AbTask &task, const Tokenizer &tokenizer);

// Shared by tasks with questions. Tokens that begin a text, where the tokenizer's files ask for
// them.
std::vector<int32_t> ab_begin_tokens(const Tokenizer &tokenizer);

// Takes context and question apart into tokens and adds the question to `shared` (question_blind:
// all questions of a document are asked behind the same prompt) or as a unit of its own
// (query_aware) to `own`. Both protocols see the same tokens.
void ab_join_prompt(const Tokenizer &tokenizer, const std::vector<int32_t> &begin,
                    const std::string &context, const std::string &question, AbProtocol protocol,
                    AbUnit &shared, AbQuestion asked, std::vector<AbUnit> &own);

} // namespace keel
