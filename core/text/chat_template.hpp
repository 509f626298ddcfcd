#pragma once

#include "text/jinja/text.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Returns `text` with every `what` replaced by `by`.
std::string replaced(std::string text, std::string_view what, std::string_view by);

enum class ChatRole { system, user, assistant };

struct ChatMessage {
    ChatRole role = ChatRole::user;
    std::string content;
};

// A part of a prompt. Only markup may become special tokens. Text from users or models never
// becomes special tokens, so it cannot imitate the marks of a turn. (This does not protect
// templates whose marks are plain words, such as Llama 2's [INST].)
struct ChatPiece {
    std::string text;
    bool is_markup = false;
};

class ModelTemplate;

// The form in which a model reads a chat. There are two kinds: the Jinja template of a model's
// files, and named formats that are written in C++. Immutable; all members are thread-safe.
//
// With a named format, a conversation is prefilled turn by turn. Earlier turns are never changed:
//
//   begin(system) + user_turn("Hi", true)            -> encode(..., false)   the model answers
//   end_of_answer() + user_turn("And then?", false)  -> encode(..., true)    the model answers
//   ...
//
// The pieces of one line are encoded together, so a token may cross the border of two pieces.
//
// A Jinja template always renders the whole conversation. It may change earlier turns, for example
// remove the thoughts of the model. Conversation (run/conversation.hpp) then reads the changed part
// again.
class ChatTemplate {
  public:
    // The marks with which a family writes its turns. "{bos}" and "{eos}" mean the tokenizer's
    // begin and end tokens.
    struct Format {
        std::string begin;        // before everything else
        std::string system_open;  // before and after the system prompt
        std::string system_close; //
        bool system_in_user =
            false; // the system prompt is inside the first user turn, after its user_open
        // start of the system turn, which is then always present; "{date}" is the current date
        std::string preamble;
        std::optional<std::string> default_system; // used if the caller gives no system prompt
        std::string user_open;
        std::string user_close;
        std::string answer_open;  // follows user_close; asks the model to answer
        std::string answer_lead;  // start of every answer, usually one space or nothing
        std::string answer_close; // follows an answer
        bool trim = false;        // white space around questions and system prompts is removed
        bool trim_answer = false; // white space around answers is removed
        std::vector<std::string> end_marks; // each of these marks ends an answer; may have "{eos}"

        bool operator==(const Format &) const = default;
    };

    ChatTemplate(std::string name, Format format)
        : name_(std::move(name)), format_(std::move(format)) {}
    explicit ChatTemplate(std::string name, std::shared_ptr<const ModelTemplate> jinja)
        : name_(std::move(name)), jinja_(std::move(jinja)) {}

    // The template with a name from names(). nullopt for any other name.
    static std::optional<ChatTemplate> by_name(std::string_view name);
    static std::vector<std::string> names();

    // The name, such as "llama3". For a Jinja template "jinja-" and 8 hex digits, which are
    // different for different templates.
    const std::string &name() const noexcept { return name_; }
    // NULL for a named format.
    const ModelTemplate *jinja() const noexcept { return jinja_.get(); }

    // The next functions are for both kinds. `today` is the date that some templates write, such as
    // "26 Jul 2024"; if empty, this machine's date. Each throws Error(input) if a Jinja template
    // fails or refuses the conversation.
    //
    // The text around the first question: `before` begins with the system prompt. `after` ends with
    // the text with which the answer begins. `trims`: the template removes white space around
    // questions.
    struct Frame {
        std::vector<ChatPiece> before, after;
        bool trims = false;
    };
    Frame frame(const Tokenizer &tokenizer, std::optional<std::string_view> system,
                std::string_view today = {}) const;
    // The pieces at the front that belong to the system prompt: what precedes the first question,
    // without the marks that precede every question. Empty if there is no system prompt.
    std::vector<ChatPiece> system_part(const Tokenizer &tokenizer,
                                       std::optional<std::string_view> system) const;
    // A conversation that ends with a user turn or with an answer.
    std::vector<ChatPiece> prompt(const Tokenizer &tokenizer, std::span<const ChatMessage> messages,
                                  std::string_view today = {}) const;

    // The next functions, up to conversation(), are for named formats only.
    const Format &format() const noexcept { return format_; }

    // Everything before the first user turn. `system`: nullopt if there is no system prompt; then
    // the template may use its default system prompt. An empty text is an empty system prompt.
    // `today`: the date that Llama 3.1 and later write in the system turn, such as "26 Jul 2024";
    // if empty, this machine's date.
    std::vector<ChatPiece> begin(std::optional<std::string_view> system,
                                 std::string_view today = {}) const;
    // A question, and the text with which the answer begins. `is_first`: the turn follows begin().
    std::vector<ChatPiece> user_turn(std::string_view text, bool is_first) const;
    // A known answer that follows user_turn(), without end_of_answer().
    std::vector<ChatPiece> answer(std::string_view text) const;
    // The text that ends an answer. It includes the token that ended a generation, so that token
    // must not also be in the cache.
    std::vector<ChatPiece> end_of_answer() const;
    // A whole conversation. An optional system message comes first, then user and assistant take
    // turns. If the conversation ends with a user turn, the result ends with the text with which
    // the answer begins. Throws Error(input) for another order.
    std::vector<ChatPiece> conversation(std::span<const ChatMessage> messages,
                                        std::string_view today = {}) const;

    // The text of the pieces for a tokenizer: with its begin and end tokens. Throws the same errors
    // as encode().
    std::string text(const Tokenizer &tokenizer, std::span<const ChatPiece> pieces) const;
    // Returns the ids of the pieces. They are equal to the ids that Hugging Face gives for the
    // whole text. `continues`: the pieces follow tokens that are already in the cache. Throws
    // Error(usage) if the template needs a begin or end token that the tokenizer lacks.
    std::vector<std::int32_t> encode(const Tokenizer &tokenizer, std::span<const ChatPiece> pieces,
                                     bool continues) const;

    // The ids that end an answer, ascending: the end ids of the tokenizer, and the ids of the
    // template's end marks.
    std::vector<std::int32_t> end_ids(const Tokenizer &tokenizer) const;
    // End marks that are not a single token of this tokenizer. They must be searched for in the
    // text (see StopMatcher).
    std::vector<std::string> stop_strings(const Tokenizer &tokenizer) const;

  private:
    jinja::Text render(const Tokenizer &tokenizer, std::span<const ChatMessage> messages,
                       std::string_view today) const;

    std::string name_;
    Format format_;
    std::shared_ptr<const ModelTemplate> jinja_;
};

// The chat template in a model's files. It is the content of chat_template.jinja if that is not
// empty. Otherwise it is the value of the key chat_template of tokenizer_config.json: a text, or a
// list of named texts. A list may have "default", and "tool_use" for conversations with tools.
struct FoundChatTemplate {
    std::string jinja; // empty if the files have no template
    std::string tool_use;
    std::string name; // the place of the template, for messages

    bool has_template() const noexcept { return !jinja.empty(); }
    // Throws Error(input) with the line if the template is not valid or not supported.
    ChatTemplate open() const;
};
// Throws Error(input) for an invalid file. `folder`: for messages; may be empty.
FoundChatTemplate find_chat_template(std::string_view chat_template_jinja,
                                     std::string_view tokenizer_config_json,
                                     const std::string &folder);
// Finds tokenizer.chat_template in a GGUF file.
FoundChatTemplate find_chat_template(const GgufFile &file, const std::string &name);
// Finds the template for a path. The path is a model folder or a file in one, as for
// load_tokenizer().
FoundChatTemplate load_chat_template(const std::filesystem::path &path);

} // namespace keel
