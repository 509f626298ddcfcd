#pragma once

#include <string>
#include <string_view>

namespace keel::server {

// One event of a stream (server-sent events): "data: JSON" and an empty line. `json` must be one
// line. Only `data:` lines are used, because the `openai` package fails at other fields.
inline std::string sse_event(std::string_view json) {
    return "data: " + std::string(json) + "\n\n";
}

// The event after which clients stop to read.
inline constexpr std::string_view sse_done = "data: [DONE]\n\n";

// A line that clients skip. It keeps proxies from closing a stream in which nothing happens.
inline constexpr std::string_view sse_ping = ": waiting\n\n";

} // namespace keel::server
