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

// The texts of one question about a context. A prompt is made of them.
struct PromptText {
    std::string context, question;
    std::string opening; // the first words of the answer, which the model is given; may be empty
};

// The tokens of these texts. In this order they are the whole prompt.
struct PromptTokens {
    std::vector<int32_t> context;  // with everything before the context
    std::vector<int32_t> question; // at least one token
    std::vector<int32_t> opening;  // the end of the user's turn, and the first words of the answer
    // The parts have other tokens if they are encoded as one text.
    bool split_changes_tokens = false;
};

// Makes the prompts of tasks with questions: as plain text, or as one turn of a user in a chat
// template. In a chat, the context and the question are the user's text, and the opening begins the
// model's answer. Only the template's own marks become special tokens.
class PromptForm {
  public:
    // Makes plain text.
    PromptForm() = default;
    // `system`: the system prompt; nullopt: the template's default.
    PromptForm(ChatTemplate chat, std::optional<std::string> system)
        : chat_(std::move(chat)), system_(std::move(system)) {}

    // The form that an experiment's file names, with the model's files. Throws Error(input) with
    // the place if the template does not exist, or if Keel does not know the model's template.
    static PromptForm choose(const Chat &chat, const std::filesystem::path &model);

    bool is_chat() const { return chat_.has_value(); }
    // "plain text", or "chat template chatml, the template's own system prompt".
    std::string description() const;

    // Throws Error(input) if the question has no token.
    PromptTokens tokens(const Tokenizer &tokenizer, const PromptText &text) const;
    // Does this token end an answer?
    bool ends_answer(const Tokenizer &tokenizer, int32_t id) const;
    // The part of the answer before an end mark that is not a single token. Returns nullopt if the
    // answer has no such mark.
    std::optional<std::string> before_end(const Tokenizer &tokenizer,
                                          const std::string &answer) const;

  private:
    struct Pieces {
        std::vector<ChatPiece> context, question, opening;
    };
    Pieces pieces(const PromptText &text) const;
    std::vector<int32_t> encode(const Tokenizer &tokenizer, const std::vector<ChatPiece> &pieces,
                                bool continues) const;

    std::optional<ChatTemplate> chat_;
    std::optional<std::string> system_;
};

} // namespace keel::ab
