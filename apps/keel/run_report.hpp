#pragma once

#include "run/generate.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel::cli {

// Returns the bytes of a token in double quotes. Invisible characters are escaped.
std::string quoted(std::string_view piece);

// The backend and kernel of each op as JSON: the output of --explain-only --json.
nlohmann::ordered_json explain_json(Pipeline &pipeline);

// The result as JSON: text, ids, stop, stats, and logprobs if they were requested.
nlohmann::ordered_json result_json(Pipeline &pipeline, const std::string &prompt,
                                   const GenerateResult &result);

// A list with one object for each token. An object has id, token (the token's text), bytes (if the
// text is not valid UTF-8), logprob and top.
nlohmann::ordered_json logprobs_json(const Tokenizer &tokenizer, const GenerateResult &result);
// The log-probabilities as text, with one line for each token.
std::string logprobs_text(const Tokenizer &tokenizer, const GenerateResult &result);

} // namespace keel::cli
