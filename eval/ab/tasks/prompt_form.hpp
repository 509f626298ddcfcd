#pragma once

#include "eval/ab/plan/config.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::ab {

// The texts of one question about a context. PromptForm makes a prompt from these texts.
struct PromptText {
    std::string context, question;
    std::string opening; // the first words of the answer, given to the model as input; can be empty
};

// The tokens of a PromptText. The whole prompt is context, then question, then opening.
struct PromptTokens {
    // includes everything before the context, for example the system prompt
    std::vector<int32_t> context;
    std::vector<int32_t> question; // at least one token
    std::vector<int32_t> opening;  // in a chat, `opening` begins with the marks that end the user's
                                   // turn
    // True if the tokens differ when the whole prompt is encoded as one text.
    bool split_changes_tokens = false;
};

// Makes prompts with questions, either as plain text or as one user turn of a chat template. In a
// chat, the context and the question are the user's text, and the opening begins the model's
// answer. Only the marks of the template become special tokens. A mark inside of a text stays plain
// text.
class PromptForm {
  public:
    // A form that makes prompts as plain text.
    PromptForm() = default;
    // A form that makes prompts with a chat template. `system` is the system prompt; nullopt means
    // the template's default system prompt.
    PromptForm(ChatTemplate chat, std::optional<std::string> system)
        : chat_(std::move(chat)), system_(std::move(system)) {}

    // Chooses the form that an experiment's file asks for (`chat`), with the chat template in the
    // files of the model if `chat` is "auto". Throws Error(input) with the place in the
    // experiment's file if the template does not exist, or if the model's template cannot be
    // used.
    static PromptForm choose(const Chat &chat, const std::filesystem::path &model);

    bool is_chat() const { return chat_.has_value(); }
    // A text such as "plain text" or "chat template chatml, the template's own system prompt".
    std::string description() const;

    // Makes the tokens of a prompt. Throws Error(input) if the question has no token.
    PromptTokens tokens(const Tokenizer &tokenizer, const PromptText &text) const;
    // True if this token ends an answer.
    bool ends_answer(const Tokenizer &tokenizer, int32_t id) const;
    // Returns the part of the answer before the first end mark. This function is for end marks that
    // consist of several tokens. Returns nullopt if the answer has no end mark.
    std::optional<std::string> before_end(const Tokenizer &tokenizer,
                                          const std::string &answer) const;

  private:
    struct Pieces {
        std::vector<ChatPiece> context, question, opening;
    };
    Pieces pieces(const Tokenizer &tokenizer, const PromptText &text) const;
    std::vector<int32_t> encode(const Tokenizer &tokenizer, const std::vector<ChatPiece> &pieces,
                                bool continues) const;

    std::optional<ChatTemplate> chat_;
    std::optional<std::string> system_;
};

} // namespace keel::ab
