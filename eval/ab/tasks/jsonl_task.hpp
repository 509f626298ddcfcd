#pragma once

#include "eval/ab/tasks/tasks.hpp"

namespace keel {

// A file of prompts with answers, one JSON object on each line: RULER's form {"input", "outputs":
// [...]} (optionally with "answer_prefix" and "index"), or LongBench's {"context", "input",
// "answers": [...]}. Throws Error(input) "FILE:LINE: ...".
std::unique_ptr<AbTaskItems> make_jsonl_items(const AbTask &task, const Tokenizer &tokenizer);

// Shared by tasks with questions. The tokens that begin a text, if the tokenizer's files require
// them.
std::vector<int32_t> ab_begin_tokens(const Tokenizer &tokenizer);

// Turns context and question into tokens and adds the question: under question_blind to `shared`,
// because all questions of a document follow the same prompt; under query_aware as a separate unit
// to `own`. Both protocols see the same tokens.
void ab_join_prompt(const Tokenizer &tokenizer, const std::vector<int32_t> &begin,
                    const std::string &context, const std::string &question, AbProtocol protocol,
                    AbUnit &shared, AbQuestion asked, std::vector<AbUnit> &own);

} // namespace keel
