#pragma once

#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// `text` with every `what` replaced by `by`.
std::string replaced(std::string text, std::string_view what, std::string_view by);

enum class ChatRole { system, user, assistant };

struct ChatMessage {
    ChatRole role = ChatRole::user;
    std::string content;
};

// A stretch of a prompt. Only markup may become special tokens. Text from people or models stays
// text, so it cannot forge a turn. (Templates whose marks are plain words, such as Llama 2's
// [INST], cannot be protected so.)
struct ChatPiece {
    std::string text;
    bool is_markup = false;
};

// The marks round the turns of a chat, as the model saw them in training. Written in C++, not run
// from the Jinja text that model folders carry: that text is only recognized. Immutable; all
// members are thread-safe.
//
// A conversation is prefilled as it grows, and nothing is ever taken back:
//
//   begin(system) + user_turn("Hi", true)            -> encode(..., false)   the model answers
//   end_of_answer() + user_turn("And then?", false)  -> encode(..., true)    the model answers
//   ...
//
// The pieces of one line belong together: tokens may reach across the border of two pieces. Where a
// template of Hugging Face would write earlier turns anew later (a system prompt that wanders to
// the last question, thoughts that are left out), the turns stay as they were; the system prompt
// stands at the first one.
class ChatTemplate {
  public:
    // How a family writes its turns. "{bos}" and "{eos}" stand for the tokenizer's own marks.
    struct Format {
        std::string begin;        // before everything
        std::string system_open;  // round the system prompt
        std::string system_close; //
        bool system_in_user =
            false; // the system prompt stands within the first user turn, behind its user_open
        std::string
            preamble; // begins the system turn, which is then always there; "{date}" is today's
        std::optional<std::string> default_system; // where the caller gives none
        std::string user_open;
        std::string user_close;
        std::string answer_open; // what asks the model to answer, behind user_close
        std::string
            answer_lead; // what the answer itself begins with, as a rule one space or nothing
        std::string answer_close; // behind an answer
        bool trim = false;        // white space round questions and system prompts is dropped
        bool trim_answer = false; // and round answers
        std::vector<std::string> end_marks; // each of them ends an answer; "{eos}" too

        bool operator==(const Format &) const = default;
    };

    ChatTemplate(std::string name, Format format)
        : name_(std::move(name)), format_(std::move(format)) {}

    // One of names(); nullopt for any other.
    static std::optional<ChatTemplate> by_name(std::string_view name);
    static std::vector<std::string> names();
    // From the Jinja text of a model folder or GGUF file. nullopt: it writes its turns as no
    // template here does; the caller then says so and asks for a name. Nothing in the text is
    // trusted.
    static std::optional<ChatTemplate> recognize(std::string_view jinja);

    // "llama3", or what it was recognized as.
    const std::string &name() const noexcept { return name_; }
    const Format &format() const noexcept { return format_; }

    // Everything before the first user turn. system: nullopt where there is none (a template's own
    // default may then stand there), empty for a system prompt that says nothing. today: the date
    // that Llama 3.1 and later put into the system turn, as in "26 Jul 2024"; empty: this
    // machine's.
    std::vector<ChatPiece> begin(std::optional<std::string_view> system,
                                 std::string_view today = {}) const;
    // A question and what asks for its answer. is_first: directly behind begin().
    std::vector<ChatPiece> user_turn(std::string_view text, bool is_first) const;
    // An answer that is already known, as it stands behind user_turn(); without end_of_answer().
    std::vector<ChatPiece> answer(std::string_view text) const;
    // What closes an answer. The token that ended a generation is part of it, so it must not be in
    // the cache too.
    std::vector<ChatPiece> end_of_answer() const;
    // A whole conversation: system (if any) first, then user and assistant by turns. One that ends
    // with a user turn asks for its answer. Throws Error (input) for another order.
    std::vector<ChatPiece> conversation(std::span<const ChatMessage> messages,
                                        std::string_view today = {}) const;

    // The ids of pieces; equal to what Hugging Face gives for the same text as a whole. continues:
    // they go on behind tokens that are already there. Throws Error (usage) where the template
    // needs a begin or end token that the tokenizer does not have.
    std::vector<std::int32_t> encode(const Tokenizer &tokenizer, std::span<const ChatPiece> pieces,
                                     bool continues) const;

    // The ids that end an answer, ascending: the tokenizer's own and those of the template's marks.
    std::vector<std::int32_t> end_ids(const Tokenizer &tokenizer) const;
    // Marks that are no single token of this tokenizer and must be watched for as text (see
    // StopMatcher).
    std::vector<std::string> stop_strings(const Tokenizer &tokenizer) const;

  private:
    std::string name_;
    Format format_;
};

// Recognizes the template that a model's files name: the contents of chat_template.jinja where it
// is not empty, else the key chat_template of tokenizer_config.json (a text, or a list of named
// texts, of which "default" counts). jinja: the text itself, empty where the files name none.
// Throws Error (input) for a file that is not valid.
struct FoundChatTemplate {
    std::string jinja;
    std::optional<ChatTemplate> known; // nullopt: none is named, or its turns are not known
};
FoundChatTemplate
find_chat_template(std::string_view chat_template_jinja, std::string_view tokenizer_config_json,
                   std::string_view config_name); // config_name: the file, for messages
// The same from a GGUF file's tokenizer.chat_template.
FoundChatTemplate find_chat_template(const GgufFile &file);
// The same for a path as load_tokenizer() takes it: a model folder, or a file in one.
FoundChatTemplate load_chat_template(const std::filesystem::path &path);

} // namespace keel
