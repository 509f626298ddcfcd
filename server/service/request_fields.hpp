#pragma once

#include "server/service/keel_fields.hpp"

#include "base/json_reader.hpp"

#include <keel/scheduler.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace keel::server {

// Limits for the values of a body.
namespace body_limit {
inline constexpr size_t depth = 32, values = 500'000;
inline constexpr int64_t choices = 128;
inline constexpr int64_t top_logprobs = 100;
inline constexpr size_t prompts = 2048;
inline constexpr size_t messages = 4096;
inline constexpr size_t stops = 128, stop_bytes = 1024;
inline constexpr int64_t max_tokens = 1 << 24;
} // namespace body_limit

// The fields that completions and chats have in common.
struct CommonFields {
    std::string model; // empty: the server's model
    api::Generation generation;
    std::optional<int64_t> max_tokens;
    std::vector<int32_t> end_ids; // stop_token_ids
    int64_t choices = 1;
    bool has_seed = false; // if not, the server draws generation.seed
    bool stream = false, include_usage = false;
    std::optional<KeelFields> keel;
};

// Reads the fields. `defaults` has the values of fields that are absent. A field that changes the
// answer and that this server does not have is an error with its name; fields without an effect on
// the answer (user, metadata, ...) are ignored. Throws JsonError.
CommonFields read_common_fields(const JsonNode &body, const api::Generation &defaults);

// The member `key`, which must be there. The error names the key, unlike that of JsonNode::at().
JsonNode required(const JsonNode &object, std::string_view key);

// A JSON document of a body, within the limits. Throws Error(input).
JsonDocument read_body(std::string_view body);

} // namespace keel::server
