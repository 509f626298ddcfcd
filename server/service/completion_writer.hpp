#pragma once

#include "server/service/answer_writer.hpp"
#include "server/service/token_text.hpp"

#include <optional>

namespace keel::server {

// Writes the answers of /v1/completions.
class CompletionWriter final : public AnswerWriter {
  public:
    struct Setup {
        AnswerHead head;
        bool stream = false, echo = false;
        std::optional<int64_t> logprobs;
        int64_t choices = 1;                       // of each prompt
        std::vector<std::string> texts;            // the prompts, for echo
        std::vector<std::vector<int32_t>> prompts; // their ids, for echo with logprobs
    };
    // The tokenizer must outlive this object.
    CompletionWriter(Setup setup, const Tokenizer &tokenizer);

    void begin(Chunks &out) override;
    void take_prompt(size_t prompt, const std::vector<api::Logprobs> &tokens, Chunks &out) override;
    void take_event(size_t prompt, const api::RequestEvent &event, Chunks &out) override;
    std::string usage_chunk(const UsageSum &usage) const override;
    std::string whole(const UsageSum &usage) const override;

  private:
    // The part of a choice that is not sent yet; for an answer without stream, the whole choice.
    struct Choice {
        std::string text;
        std::vector<std::string> tokens, top; // `top`: JSON values
        std::vector<std::optional<double>> logprobs;
        std::vector<int64_t> offsets;
        OffsetCounter counter;
        const char *finish = nullptr;
        std::optional<std::string> stop_text; // the stop string that ended the text
    };

    void add_token(Choice &choice, int32_t id, const api::Logprobs *logprobs);
    void echo_prompt(size_t prompt, const std::vector<api::Logprobs> *tokens, Chunks &out);
    std::string chunk(size_t index);
    void write_choice(JsonWriter &out, size_t index) const;

    Setup setup_;
    const Tokenizer &tokenizer_;
    std::vector<Choice> choices_;
    std::vector<bool> is_echoed_; // of each prompt: its text is in its choices
};

} // namespace keel::server
