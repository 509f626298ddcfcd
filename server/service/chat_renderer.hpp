#pragma once

#include "text/chat_template.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace keel::server {

// Turns the messages of a chat into a prompt. All members are thread-safe. The tokenizer must
// outlive this object.
class ChatRenderer {
  public:
    ChatRenderer(ChatTemplate chat, const Tokenizer &tokenizer)
        : chat_(std::move(chat)), tokenizer_(tokenizer) {}

    // The ids of the conversation, up to the place where the answer begins. Throws Error(input) if
    // the order of the roles does not fit.
    std::vector<int32_t> render_chat(std::span<const ChatMessage> messages) const;
    // The text of the same prompt, with its special tokens.
    std::string render_text(std::span<const ChatMessage> messages) const;

    const std::string &name() const { return chat_.name(); }
    // The ids and the texts that end an answer.
    std::vector<int32_t> end_ids() const { return chat_.end_ids(tokenizer_); }
    std::vector<std::string> stop_strings() const { return chat_.stop_strings(tokenizer_); }
    // A text with which answers may begin and that is not part of the answer.
    const std::string &answer_lead() const { return chat_.format().answer_lead; }

  private:
    ChatTemplate chat_;
    const Tokenizer &tokenizer_;
};

} // namespace keel::server
