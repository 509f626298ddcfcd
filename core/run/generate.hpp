#pragma once

#include "config/sampling_section.hpp"
#include "run/session.hpp"
#include "text/logprobs.hpp"
#include "text/sampler.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

class TextStream;

enum class StopReason {
    end_token,   // the model ended the text
    stop_string, // a stop string was met; it is not part of the text
    max_tokens,
    cache_full,  // context, cap or budget reached and the policy does not evict; `detail` names the
                 // key to change
    cancelled,   // HostServices::request_cancel, Ctrl-C
    device_lost, // and no other backend could go on; `detail` is the error. The text so far is
                 // there, the session is of no use
};
const char *stop_reason_name(StopReason reason); // "end_token", ...

struct GenerateOptions {
    int64_t max_tokens = pipeline::GenerationSection::default_max_tokens;
    std::vector<std::string> stop;
    std::vector<std::string> pin; // parts of the prompt that are never evicted, see find_text();
                                  // without a prompt there is nothing to pin
    std::string pin_key = "generation.pin"; // where they were asked for, for messages
    SamplingParams sampling;
    bool ignore_end = false; // go on past end tokens, up to max_tokens
    std::vector<int32_t>
        end_ids; // tokens that end the text beside those of the tokenizer, ascending
    std::optional<int64_t>
        logprobs; // note log-probabilities: of each token, and of so many of the likeliest
    std::optional<Rng::State> random; // draw on from here, not from sampling.seed
    // Called with text as soon as it is certain: complete characters, never a part of a stop
    // string.
    std::function<void(std::string_view)> on_text;
    Progress progress; // of the prefill
};
// From a config's sampling and generation sections.
GenerateOptions generate_options(const pipeline::PipelineConfig &config);

struct GenerateResult {
    std::string text;
    std::vector<int32_t> ids;            // generated, the end token included
    std::vector<TokenLogprobs> logprobs; // of each of ids, where they were asked for
    Rng::State random{};                 // of the sampler, behind the last draw
    StopReason reason = StopReason::max_tokens;
    std::string
        detail; // of stop_string and cache_full; of cancelled where part of the prompt stays
    double first_token_seconds = 0; // from the call to the first token
    SessionStats stats;
};

// A generation token by token, for callers that run the steps of several sequences together
// (SessionBatch). generate() is
//
//     Generation g(session, prompt, options);
//     g.run_ahead();
//     while (const auto id = g.next()) session.decode(*id);
//     return g.finish();
class Generation {
  public:
    // Takes the prompt in, as generate() says. The session outlives this.
    Generation(Session &session, std::span<const int32_t> prompt, const GenerateOptions &options);
    ~Generation();
    Generation(const Generation &) = delete;
    Generation &operator=(const Generation &) = delete;

    Session &session() const { return session_; }
    // The caller promises to pass each token of next() to Session::decode, one sequence at a time.
    // Greedy steps may then be queued before their token is read (Session::greedy).
    void run_ahead() { runs_ahead_ = true; }
    // Chooses the next token by the session's last step. What has to be taken in before the next
    // call; none: the text is at its end.
    std::optional<int32_t> next();
    // Whether next() asks for Session::logits(); else Session::greedy() is all that it needs.
    bool needs_logits() const { return !plain_greedy_ || options_.logprobs; }
    // Ends the text: the token that next() gave cannot be taken in.
    void stop(StopReason reason, std::string detail = {});
    bool has_text() const { return !result_.ids.empty(); } // a token was chosen
    // The result. Once, at the end.
    GenerateResult finish();

  private:
    void take_prompt(std::span<const int32_t> prompt);
    int32_t choose();
    void emit(const std::string &text);
    bool is_cancelled() const;

    Session &session_;
    GenerateOptions options_;
    std::chrono::steady_clock::time_point start_;
    Sampler sampler_;
    std::unique_ptr<TextStream> stream_;
    GenerateResult result_;
    bool plain_greedy_, stopped_ = false, runs_ahead_ = false;
};

// Prefills the prompt and generates. In an empty session an empty prompt stands for the token that
// begins a text (Tokenizer::bos_id()). Throws Error(usage) if the model has no such token, and
// Error(resource) if the prompt does not fit. After the first token, every end is a result.
//
// A session may have a pending token, of an earlier generate() or a saved session. It is read
// before the prompt. If the prompt is empty, the new ids are those with which the earlier
// generation would have continued (under the same random numbers). But the two texts need not join:
// if the end of the first text cut a character in two, both texts have U+FFFD there. Afterwards the
// last token is pending.
//
// A generation that was cancelled before its prompt was read has no ids. Session::prefill says what
// then stays in the session.
GenerateResult generate(Session &session, std::span<const int32_t> prompt,
                        const GenerateOptions &options);

} // namespace keel
