#include "text/chat_prompt.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "text/jinja/json_value.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>

namespace keel {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Text;
using jinja::Value;

// Roles that templates write between their marks, such as <|user|>. Any other role is data, so it
// cannot become a part of a special token.
constexpr std::array<std::string_view, 9> known_roles{
    "system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "control"};

// Copies a message. Its role is no data if the role is known.
Value with_trusted_role(const Value &message) {
    if (!message.is(Kind::dict)) return message;
    auto copy = std::make_shared<Dict>();
    for (const auto &[key, value] : message.dict().members) {
        const bool is_role =
            key.is(Kind::string) && key.bytes() == "role" && value.is(Kind::string) &&
            std::ranges::find(known_roles, std::string_view(value.bytes())) != known_roles.end();
        copy->set(key, is_role ? Value::string(value.bytes()) : value);
    }
    return Value::dict(std::move(copy));
}

[[noreturn]] void refuse(const std::string &name, const std::string &text) {
    throw_error(ErrorKind::input, "{}: {}", printable(name, 400), text);
}

// The value of a key. NULL if the key is absent or null.
const Value *member(const Value &root, std::string_view key) {
    const Value *found = root.dict().find(key);
    return found == nullptr || found->is(Kind::none) ? nullptr : found;
}

const Value *list_member(const Value &root, std::string_view key, const std::string &name) {
    const Value *found = member(root, key);
    if (found == nullptr) return nullptr;
    if (!found->is(Kind::list))
        refuse(name, fmt::format("{}: expected a list, found {}", key, type_name(*found)));
    return found;
}

Value checked_messages(const Value &messages, const std::string &name) {
    std::vector<Value> out;
    for (const Value &message : messages.list().items) {
        const Value *role = message.is(Kind::dict) ? message.dict().find("role") : nullptr;
        if (role == nullptr || !role->is(Kind::string))
            refuse(name, fmt::format("message {}: expected an object with the key role, which is a "
                                     "string, for example {{\"role\": \"user\", \"content\": "
                                     "\"Hello\"}}",
                                     out.size() + 1));
        out.push_back(with_trusted_role(message));
    }
    return Value::list(std::move(out));
}

std::string_view role_name(ChatRole role) {
    return role == ChatRole::system ? "system" : role == ChatRole::user ? "user" : "assistant";
}

} // namespace

ChatRequest read_chat_request(std::string_view json, const std::string &name) {
    const Value root = jinja::read_json(json, name);
    ChatRequest out;
    if (root.is(Kind::list)) {
        out.messages = checked_messages(root, name);
    } else {
        constexpr std::array<std::string_view, 5> keys{
            "messages", "tools", "documents", "add_generation_prompt", "chat_template_kwargs"};
        if (!root.is(Kind::dict))
            refuse(name, fmt::format("expected a list of messages or an object, found {}",
                                     type_name(root)));
        for (const auto &member : root.dict().members)
            if (std::ranges::find(keys, std::string_view(member.first.bytes())) == keys.end())
                refuse(name, fmt::format("unknown key {}; the keys are messages, tools, documents, "
                                         "add_generation_prompt and chat_template_kwargs",
                                         quote_text(member.first.bytes())));
        const Value *messages = list_member(root, "messages", name);
        if (messages == nullptr) refuse(name, "expected the key messages, found none");
        out.messages = checked_messages(*messages, name);
        if (const Value *tools = list_member(root, "tools", name)) out.tools = *tools;
        if (const Value *documents = list_member(root, "documents", name))
            out.documents = *documents;
        if (const Value *more = member(root, "chat_template_kwargs")) {
            if (!more->is(Kind::dict))
                refuse(name, fmt::format("chat_template_kwargs: expected an object, found {}",
                                         type_name(*more)));
            out.variables = std::make_shared<Dict>();
            for (const auto &member : more->dict().members)
                out.variables->set(member.first, member.second);
        }
    }
    const Value *asks = root.is(Kind::dict) ? member(root, "add_generation_prompt") : nullptr;
    const auto &items = out.messages.list().items;
    if (asks != nullptr && !asks->is(Kind::boolean))
        refuse(name, fmt::format("add_generation_prompt: expected true or false, found {}",
                                 type_name(*asks)));
    out.add_generation_prompt =
        asks != nullptr ? asks->flag()
                        : items.empty() || items.back().dict().find("role")->bytes() != "assistant";
    return out;
}

ChatRequest chat_request(std::span<const ChatMessage> messages) {
    ChatRequest out;
    std::vector<Value> items;
    for (const ChatMessage &message : messages) {
        auto dict = std::make_shared<Dict>();
        dict->set(Value::string("role"), Value::string(std::string(role_name(message.role))));
        dict->set(Value::string("content"),
                  Value::string(replace_invalid_utf8(message.content), true));
        items.push_back(Value::dict(std::move(dict)));
    }
    out.messages = Value::list(std::move(items));
    out.add_generation_prompt = messages.empty() || messages.back().role != ChatRole::assistant;
    return out;
}

ModelTemplate::ModelTemplate(const std::string &jinja, const std::string &tool_use,
                             const std::string &name)
    : main_(jinja, name) {
    if (!tool_use.empty()) tool_use_.emplace(tool_use, name + ", template tool_use");
}

jinja::Text ModelTemplate::render(const ChatRequest &request, const Tokenizer &tokenizer) const {
    Dict variables;
    const auto set = [&](const char *name, Value value) {
        variables.set(Value::string(name), std::move(value));
    };
    const auto mark = [&](const char *name, std::optional<std::int32_t> id) {
        if (id) set(name, Value::string(replace_invalid_utf8(tokenizer.piece(*id))));
    };
    mark("bos_token", tokenizer.bos_id());
    mark("eos_token", tokenizer.eos_id());
    if (request.variables)
        for (const auto &member : request.variables->members)
            variables.set(member.first, member.second);
    set("messages", request.messages);
    set("tools", request.tools);
    set("documents", request.documents);
    set("add_generation_prompt", Value::boolean(request.add_generation_prompt));
    const bool has_tools = !request.tools.is(Kind::none);
    const jinja::Template &chosen = has_tools && tool_use_ ? *tool_use_ : main_;
    return chosen.render(variables, request.now.value_or(std::time(nullptr)));
}

std::string ModelTemplate::end_mark(const Tokenizer &tokenizer) const {
    std::string key;
    for (const auto id : {tokenizer.bos_id(), tokenizer.eos_id()})
        key += (id ? std::string(tokenizer.piece(*id)) : "") + '\0';
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = end_marks_.try_emplace(key);
    if (!is_new) return place->second;
    try {
        const std::array<ChatMessage, 2> messages{
            {{ChatRole::user, "-"}, {ChatRole::assistant, "-"}}};
        const Text text = render(chat_request(messages), tokenizer);
        if (text.data().size() < 2) return {};
        std::string_view after = std::string_view(text.bytes()).substr(text.data().back().end);
        after.remove_prefix(std::min(after.find_first_not_of(" \n"), after.size()));
        after = after.substr(0, after.find('\n'));
        place->second = after.substr(0, after.find_last_not_of(' ') + 1);
    } catch (const Error &) {
        // a template that refuses this conversation tells no end mark
    }
    return place->second;
}

std::vector<ChatPiece> chat_pieces(const Text &text) {
    std::vector<ChatPiece> out;
    text.each_run([&](std::string_view run, bool is_data) {
        out.push_back({std::string(run), !is_data});
    });
    return out;
}

std::vector<ChatPiece> render_chat(const ChatTemplate &chat, const ChatRequest &request,
                                   const Tokenizer &tokenizer) {
    if (chat.jinja() != nullptr) return chat_pieces(chat.jinja()->render(request, tokenizer));
    const auto refuse_request = [&](std::string_view what) {
        throw_error(
            ErrorKind::usage,
            "the chat template {} cannot write {}; only the template of a model's files can",
            chat.name(), what);
    };
    if (!request.tools.is(Kind::none) || !request.documents.is(Kind::none))
        refuse_request("tools and documents");
    if (request.variables && !request.variables->members.empty())
        refuse_request("chat_template_kwargs");
    std::vector<ChatMessage> messages;
    for (const Value &message : request.messages.list().items) {
        const std::string &role = message.dict().find("role")->bytes();
        const Value *content = message.dict().find("content");
        ChatMessage out;
        if (role == "assistant") {
            out.role = ChatRole::assistant;
        } else if (role == "system") {
            out.role = ChatRole::system;
        } else if (role != "user") {
            refuse_request(fmt::format("messages with the role {}", quote_text(role)));
        }
        if (content == nullptr || !content->is(Kind::string))
            refuse_request("messages without a text as their content");
        if (message.dict().members.size() > 2)
            refuse_request("messages with more keys than role and content");
        out.content = content->bytes();
        messages.push_back(std::move(out));
    }
    const bool ends_with_answer = !messages.empty() && messages.back().role == ChatRole::assistant;
    if (request.add_generation_prompt == ends_with_answer)
        refuse_request(ends_with_answer ? "the beginning of an answer after an answer"
                                        : "a question without the beginning of the answer");
    return chat.conversation(messages);
}

} // namespace keel
