// Input: the body of a request. Any input gives either a checked request or an error with a
// message of one line. What is checked must be within its limits.
#include "server/service/api_error.hpp"
#include "server/service/chat_request.hpp"
#include "server/service/completion_request.hpp"

#include "text/utf8.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace server = keel::server;

namespace {

constexpr int64_t vocabulary = 1000;

void check(bool is_right) {
    if (!is_right) std::abort();
}

void check_policy(const server::KeelFields &keel) {
    for (const auto &key : keel.policy) {
        check(!key.first.empty() &&
              key.second.find_first_of("/\n\"'{}#&*!|>%@`") == std::string::npos);
        check(key.first != "log" && key.first != "plugin");
    }
    for (const auto &range : keel.protect) check(range.first >= 0 && range.first < range.second);
}

void check_common(const server::CommonFields &fields) {
    const keel::api::Generation &g = fields.generation;
    check(fields.choices >= 1 && fields.choices <= server::body_limit::choices);
    check(fields.max_tokens.value_or(0) >= 0);
    check(std::isfinite(g.temperature) && g.temperature >= 0 && g.top_p >= 0 && g.top_p <= 1);
    check(g.min_p >= 0 && g.min_p <= 1 && g.top_k >= 0 && g.repetition_penalty > 0);
    check(g.stop.size() <= server::body_limit::stops);
    for (const std::string &stop : g.stop) check(!stop.empty() && keel::is_valid_utf8(stop));
    if (fields.keel) check_policy(*fields.keel);
}

template <typename Read> void read_or_refuse(Read read) {
    try {
        read();
    } catch (...) {
        const server::ApiError error = server::current_api_error();
        check(error.status == 400 && !error.message.empty());
        check(error.message.find('\n') == std::string::npos);
        check(server::error_response(error).body.starts_with("{\"error\":{\"message\":\""));
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view body(reinterpret_cast<const char *>(data), size);
    read_or_refuse([&] {
        const keel::JsonDocument document = server::read_body(body);
        const auto request = server::read_completion_request(document.object(), {}, vocabulary);
        check_common(request);
        check(!request.prompts.empty() && request.prompts.size() <= server::body_limit::prompts);
        for (const server::Prompt &prompt : request.prompts)
            for (const int32_t id : prompt.ids) check(id >= 0 && id < vocabulary);
    });
    read_or_refuse([&] {
        const keel::JsonDocument document = server::read_body(body);
        const auto request = server::read_chat_request(document.object(), {});
        check_common(request);
        check(!request.messages.empty());
    });
    read_or_refuse([&] { check_policy(server::read_keel_header(body)); });
    return 0;
}
