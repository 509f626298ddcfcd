#pragma once

#include "run/generate.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::cli {

// A token's bytes in double quotes, with what cannot be seen escaped.
std::string quoted(std::string_view piece);

// Who runs each op: what --explain-only --json prints.
nlohmann::ordered_json explain_json(Pipeline &pipeline);

// text, ids, stop, logprobs where they were asked for, stats.
nlohmann::ordered_json result_json(Pipeline &pipeline, const std::string &prompt,
                                   const GenerateResult &result);

// A list with one object a token: id, token (its text), bytes where they are no text of their own,
// logprob, top.
nlohmann::ordered_json logprobs_json(const Tokenizer &tokenizer, const GenerateResult &result);
// The same for people: one line a token.
std::string logprobs_text(const Tokenizer &tokenizer, const GenerateResult &result);

} // namespace keel::cli
