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

namespace keel {

// The texts of one question over a context, before a prompt is made of them.
struct AbPromptText {
    std::string context, question;
    std::string opening; // the first words of the answer, which the model is given; may be empty
};

// Their tokens. Behind each other they are the whole prompt.
struct AbPromptTokens {
    std::vector<int32_t> context;  // with all that stands before it
    std::vector<int32_t> question; // at least one token
    std::vector<int32_t> opening;  // what ends the question's turn, and the answer's first words
    bool split_changes_tokens = false; // apart they have other tokens than together
};

// How tasks with questions write their prompts: as plain text, or as the one turn of a user in a
// chat template. In a chat the context and the question are the user's, the opening begins the
// model's answer, and only the template's own marks become special tokens.
class AbPromptForm {
  public:
    // Plain text.
    AbPromptForm() = default;
    // `system`: nullopt where the template's own default may stand.
    AbPromptForm(ChatTemplate chat, std::optional<std::string> system)
        : chat_(std::move(chat)), system_(std::move(system)) {}

    // What an experiment asks for, with a model's files. Throws Error(input) that names the place
    // for a template that does not exist, or where the model's template is not known to Keel.
    static AbPromptForm choose(const AbChat &chat, const std::filesystem::path &model);

    bool is_chat() const { return chat_.has_value(); }
    // "plain text", "chat template chatml, the template's own system prompt"
    std::string description() const;

    // Throws Error(input) for a question without a token.
    AbPromptTokens tokens(const Tokenizer &tokenizer, const AbPromptText &text) const;
    // Whether this token ends an answer.
    bool ends_answer(const Tokenizer &tokenizer, int32_t id) const;
    // The answer before a mark that ends it and that the tokenizer has no token for; nullopt: there
    // is none in it.
    std::optional<std::string> before_end(const Tokenizer &tokenizer,
                                          const std::string &answer) const;

  private:
    struct Pieces {
        std::vector<ChatPiece> context, question, opening;
    };
    Pieces pieces(const AbPromptText &text) const;
    std::vector<int32_t> encode(const Tokenizer &tokenizer, const std::vector<ChatPiece> &pieces,
                                bool continues) const;

    std::optional<ChatTemplate> chat_;
    std::optional<std::string> system_;
};

} // namespace keel
