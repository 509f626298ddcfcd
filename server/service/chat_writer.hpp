#pragma once

#include "server/service/answer_writer.hpp"
#include "server/service/token_text.hpp"

#include <optional>

namespace keel::server {

// Writes the answers of /v1/chat/completions.
class ChatWriter final : public AnswerWriter {
  public:
    struct Setup {
        AnswerHead head;
        bool stream = false;
        std::optional<int64_t> logprobs;
        int64_t choices = 1;
        std::string lead;             // text that is removed from the start of answers
        std::vector<int32_t> end_ids; // their tokens have no entry in the log probabilities
    };
    // The tokenizer must outlive this object.
    ChatWriter(Setup setup, const Tokenizer &tokenizer);

    void begin(Chunks &out) override;
    void take_prompt(size_t, const std::vector<api::Logprobs> &, Chunks &) override {}
    void take_event(size_t prompt, const api::RequestEvent &event, Chunks &out) override;
    std::string usage_chunk(const UsageSum &usage) const override;
    std::string whole(const UsageSum &usage) const override;

  private:
    struct Choice {
        std::string text;                  // that is not sent yet; else the whole text
        std::vector<std::string> logprobs; // JSON objects that belong to `text`
        bool is_at_start = true;           // the lead may still come
        const char *finish = nullptr;
        std::optional<std::string> stop_text;
    };

    void strip_lead(Choice &choice, bool is_last) const;
    std::string token_object(const api::Logprobs &token) const;
    void write_logprobs(JsonWriter &out, const Choice &choice) const;
    std::string chunk(size_t index, const std::string &delta, const Choice *logprobs,
                      const Choice *finish) const;

    Setup setup_;
    const Tokenizer &tokenizer_;
    std::vector<Choice> choices_;
};

} // namespace keel::server
