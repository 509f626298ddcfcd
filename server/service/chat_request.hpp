#pragma once

#include "server/service/request_fields.hpp"

#include "text/chat_template.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace keel::server {

// The body of /v1/chat/completions.
struct ChatRequest : CommonFields {
    std::vector<ChatMessage> messages;
    std::optional<int64_t> logprobs; // number of most likely tokens to report
};

// Throws Error or JsonError.
ChatRequest read_chat_request(const JsonNode &body, const api::Generation &defaults);

// The list `messages`. A message's content is a text, or a list of parts of the type `text`, which
// are joined. Throws JsonError.
std::vector<ChatMessage> read_messages(const JsonNode &list);

} // namespace keel::server
