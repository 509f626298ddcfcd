#include "server/service/chat_request.hpp"

#include <nlohmann/json.hpp>

namespace keel::server {
namespace {

ChatRole read_role(const JsonNode &message) {
    const JsonNode node = required(message, "role");
    const std::string &role = node.text();
    if (role == "system" || role == "developer") return ChatRole::system;
    if (role == "user") return ChatRole::user;
    if (role == "assistant") return ChatRole::assistant;
    if (role == "tool" || role == "function")
        node.fail("tools are not available, so a message cannot have this role");
    node.expected("system, developer, user or assistant");
}

std::string read_content(const JsonNode &message, ChatRole role) {
    const auto content = message.find("content");
    if (!content) {
        // an answer that had only tool calls has no text
        if (role == ChatRole::assistant && message.has("content")) return {};
        message.fail("content", "expected a text or a list of parts, found nothing");
    }
    if (content->is_text()) return content->text();
    if (!content->is_array()) content->expected("a text or a list of parts");
    std::string text;
    for (size_t i = 0; i < content->size(body_limit::messages); ++i) {
        const JsonNode part = content->element(i);
        const JsonNode type = required(part, "type");
        if (type.text() != "text") type.fail("this server reads only parts of the type 'text'");
        text += required(part, "text").text();
    }
    return text;
}

} // namespace

std::vector<ChatMessage> read_messages(const JsonNode &list) {
    if (list.size() == 0) list.expected("at least one message");
    std::vector<ChatMessage> messages;
    for (size_t i = 0; i < list.size(body_limit::messages); ++i) {
        const JsonNode message = list.element(i);
        const ChatRole role = read_role(message);
        if (const auto calls = message.find("tool_calls"); calls && !calls->raw().empty())
            calls->fail("tools are not available, so a message cannot have tool calls");
        messages.push_back({role, read_content(message, role)});
    }
    if (messages.back().role != ChatRole::user)
        list.element(list.size() - 1)
            .fail("role", "expected the role user in the last message, found another role; this "
                          "server does not continue an answer");
    return messages;
}

ChatRequest read_chat_request(const JsonNode &body, const api::Generation &defaults) {
    ChatRequest out;
    static_cast<CommonFields &>(out) = read_common_fields(body, defaults);
    out.messages = read_messages(required(body, "messages"));
    if (out.max_tokens == 0) body.fail("max_tokens", "expected 1 or more, found 0");
    const bool wants = body.flag_or("logprobs", false);
    const auto top = body.find("top_logprobs");
    if (top && !wants && top->integer(0, body_limit::top_logprobs) > 0)
        top->fail("expected logprobs: true beside top_logprobs");
    if (wants) out.logprobs = top ? top->integer(0, body_limit::top_logprobs) : 0;
    return out;
}

} // namespace keel::server
