#pragma once

#include "server/service/request_fields.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace keel::server {

// A prompt as the client sent it: a text, or token ids.
struct Prompt {
    std::string text;
    std::vector<int32_t> ids;
    bool is_ids = false;
};

// The body of /v1/completions.
struct CompletionRequest : CommonFields {
    static constexpr int64_t default_max_tokens = 16; // as in OpenAI's interface

    std::vector<Prompt> prompts; // at least one
    bool is_one = true;          // `prompt` was one text or one list of ids, not a list of prompts
    bool echo = false;
    bool add_special_tokens = true;  // adds the begin token to prompts that are texts
    std::optional<int64_t> logprobs; // number of most likely tokens to report
};

// `vocabulary`: ids of prompts must be less. Throws Error or JsonError.
CompletionRequest read_completion_request(const JsonNode &body, const api::Generation &defaults,
                                          int64_t vocabulary);

// A list of token ids. Throws JsonError.
std::vector<int32_t> read_ids(const JsonNode &list, int64_t vocabulary);

} // namespace keel::server
