#pragma once

#include "text/chat_template.hpp"
#include "text/jinja/template.hpp"

#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A conversation for a chat template, with the variables that transformers' apply_chat_template
// passes. All strings that come from a caller are marked as data (see jinja/text.hpp).
struct ChatRequest {
    jinja::Value messages = jinja::Value::list({}); // dicts with role, content, tool_calls...
    jinja::Value tools = jinja::Value::none();      // a list of JSON schemas
    jinja::Value documents = jinja::Value::none();
    std::shared_ptr<jinja::Dict> variables; // further variables, such as enable_thinking; or NULL
    bool add_generation_prompt = true;      // ends with the text that begins the answer
    std::optional<std::time_t> now;         // for templates that write the date; default: the time
};

// Reads a request from JSON: a list of messages, or an object with the key messages and optionally
// tools, documents, add_generation_prompt and chat_template_kwargs. If add_generation_prompt is
// absent, it is true unless the last message is the assistant's. `name`: the file, for messages.
// Throws Error(input).
ChatRequest read_chat_request(std::string_view json, const std::string &name);
ChatRequest chat_request(std::span<const ChatMessage> messages);

// The Jinja templates of a model. Immutable; all members are thread-safe.
class ModelTemplate {
  public:
    // `tool_use`: the template for conversations with tools, empty if the model has only one
    // template. `name` is the place of the template, for messages. Throws Error(input) with the
    // line if a template is not valid or uses a construct that is not supported.
    ModelTemplate(const std::string &jinja, const std::string &tool_use, const std::string &name);

    // Throws Error(input) with the line if the template fails or refuses the conversation.
    jinja::Text render(const ChatRequest &request, const Tokenizer &tokenizer) const;
    // The text that the template writes after an answer, up to the first line break and without
    // white space; empty if there is none.
    std::string end_mark(const Tokenizer &tokenizer) const;

  private:
    jinja::Template main_;
    std::optional<jinja::Template> tool_use_;
    mutable std::mutex mutex_;
    // the marks that were computed, by the begin and end tokens of the tokenizer
    mutable std::map<std::string, std::string> end_marks_;
};

// Converts a rendered text to pieces. Only the template's own characters are markup.
std::vector<ChatPiece> chat_pieces(const jinja::Text &text);

// Renders a request with any template: the pieces of the prompt, for ChatTemplate::encode(). A
// named template takes only messages with the roles system, user and assistant, and no tools; for
// other requests, throws Error(usage).
std::vector<ChatPiece> render_chat(const ChatTemplate &chat, const ChatRequest &request,
                                   const Tokenizer &tokenizer);

} // namespace keel
