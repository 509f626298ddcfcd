#pragma once

#include "config/sampling_section.hpp"
#include "run/prompt_lookup.hpp"
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
    stop_string, // the text contained a stop string; the text ends before it
    max_tokens,  // GenerateOptions::max_tokens tokens were generated
    // The context, kv.max_mib or the budget is full, and the policy does not evict. `detail` names
    // the key to change.
    cache_full,
    cancelled, // the user cancelled: HostServices::request_cancel, Ctrl-C
    // A device was lost, and no other backend could continue. `detail` is the error. The result has
    // the text so far, and the session is broken.
    device_lost,
};
const char *stop_reason_name(StopReason reason); // "end_token", ...

// The part of a text that becomes complete with one token, or at the end of the text.
struct TextPiece {
    std::string text; // whole characters, no part of a stop string; may be empty
    // The tokens whose text is complete now, in order. A token waits for its text if the text ends
    // within a character, or may be the start of a stop string.
    std::vector<int32_t> ids;
    std::vector<TokenLogprobs> logprobs; // of `ids`, with GenerateOptions::logprobs
    bool is_last = false;                // true: the piece comes from Generation::finish()
};

struct GenerateOptions {
    int64_t max_tokens = pipeline::GenerationSection::default_max_tokens;
    std::vector<std::string> stop;
    // Parts of the prompt that are never evicted, see find_text(). Without a prompt, `pin` has no
    // effect.
    std::vector<std::string> pin;
    std::string pin_key = "generation.pin"; // the key or option that sets `pin`, for messages
    SamplingParams sampling;
    bool ignore_end = false; // true: the tokenizer's end tokens do not end the text
    // Tokens that end the text, in addition to the tokenizer's end tokens. The ids must be rising.
    std::vector<int32_t> end_ids;
    // If set, GenerateResult::logprobs has an entry for each generated token. An entry has this
    // number of most likely tokens.
    std::optional<int64_t> logprobs;
    // The state from which the random numbers start. If not set, they start from sampling.seed.
    std::optional<Rng::State> random;
    // Gets the text while it is generated, in whole characters and without stop strings.
    std::function<void(std::string_view)> on_text;
    // Gets each token of the text: called after each token, and by Generation::finish() with the
    // rest.
    std::function<void(TextPiece)> on_piece;
    Progress progress; // gets the progress of reading the prompt
    // Most tokens to guess for a step (PromptLookup). Above 0, the pipeline's config must have a
    // generation.lookup of at least this number. Only generate() makes guesses.
    int64_t lookup = 0;
};
// Returns the options that a config's sampling and generation sections give.
GenerateOptions generate_options(const pipeline::PipelineConfig &config);

struct GenerateResult {
    std::string text;
    std::vector<int32_t> ids; // generated tokens, including the end token
    // one entry for each of `ids`, with GenerateOptions::logprobs
    std::vector<TokenLogprobs> logprobs;
    Rng::State random{}; // state of the sampler after the last token
    StopReason reason = StopReason::max_tokens;
    // Details about the reason: the stop string, the key to change, or how much of a cancelled
    // prompt stays in the session. Empty for other reasons.
    std::string detail;
    double first_token_seconds = 0; // from the call to the first token
    SessionStats stats;
};

// Generates a text token by token, for callers that run the steps of several sequences together
// (SessionBatch). generate() is equal to
//
//     Generation g(session, prompt, options);
//     g.run_ahead();
//     while (const auto id = g.next()) g.advance(*id);
//     return g.finish();
class Generation {
  public:
    enum class Prompt {
        read_now, // the constructor reads the prompt, see generate()
        // The caller lets the session read unread(), part by part, and calls count_read() after
        // each part. The constructor checks that the prompt fits.
        read_by_caller,
        // The session has read the prompt, and its last step has results. For a fork of a session.
        is_read,
    };
    // The session must outlive this object.
    Generation(Session &session, std::span<const int32_t> prompt, const GenerateOptions &options,
               Prompt how = Prompt::read_now);
    ~Generation();
    Generation(const Generation &) = delete;
    Generation &operator=(const Generation &) = delete;

    Session &session() const { return session_; }
    // Returns the tokens of the prompt that the session has not read. If this is empty, next() may
    // be called.
    std::span<const int32_t> unread() const { return std::span(input_).subspan(read_); }
    // Call it after the session has read the next n tokens of unread(). Throws the errors of
    // GenerateOptions::progress.
    void count_read(size_t n);
    // Call it if the prompt cannot be read. Removes pins of tokens that were not read.
    void give_up_prompt();
    bool is_cancelled() const;
    // true: the caller will most likely pass the next token to Session::decode, and will run no
    // step of another sequence before. Greedy steps can then be queued before their token is read
    // (Session::greedy).
    void run_ahead(bool on = true) { runs_ahead_ = on; }
    // Chooses the next token from the results of the session's last step. Returns the token. The
    // session must run a step with this token before the next call. Returns nullopt if the text has
    // ended.
    std::optional<int32_t> next();
    // Runs a step of the session with the token of next(), for a caller that runs one sequence at a
    // time. With GenerateOptions::lookup, the step may also take in a guess of the next tokens.
    void advance(int32_t id);
    // Returns true if next() reads Session::logits(), and false if it reads only Session::greedy().
    bool needs_logits() const { return !plain_greedy_ || options_.logprobs; }
    // Ends the text. Call it if the session cannot run a step with the token of next().
    void stop(StopReason reason, std::string detail = {});
    bool has_text() const { return !result_.ids.empty(); }  // a token was chosen
    size_t generated() const { return result_.ids.size(); } // tokens that were chosen
    // Returns the result. Call it once, at the end.
    GenerateResult finish();

  private:
    void set_prompt(std::span<const int32_t> prompt, Prompt how);
    void read_prompt();
    int32_t choose();
    void emit(const std::string &text, bool is_last = false);
    void give_piece(const std::string &text, bool is_last);
    std::string how_much_stays() const;
    bool is_guessed(int32_t id) const;
    void settle_guess();
    std::span<const int32_t> guess(int32_t id);
    std::span<const float> row();
    std::span<const int32_t> history() const;

    Session &session_;
    GenerateOptions options_;
    std::vector<int32_t> input_; // the prompt, after the session's pending token
    size_t read_ = 0;            // tokens of input_ that the session has read
    int64_t before_ = 0;         // tokens in the session before the prompt
    std::chrono::steady_clock::time_point start_;
    Sampler sampler_;
    std::unique_ptr<TextStream> stream_;
    GenerateResult result_;
    // For on_piece.
    size_t given_ = 0;               // tokens of result_.ids that on_piece got
    std::vector<size_t> text_bytes_; // of the tokens that on_piece did not get yet
    size_t bytes_over_ = 0;          // bytes of text that on_piece got without their token
    bool plain_greedy_, stopped_ = false, runs_ahead_ = false;
    PromptLookup lookup_;
    GuessGain gain_;
    // The tokens of the last step if it took in a guess, otherwise empty. The first token was
    // chosen; the others are the guess. row_: the row of logits from which the next token is
    // chosen, which is also the number of guessed tokens that were right.
    std::vector<int32_t> guess_;
    size_t row_ = 0;
};

// Prefills the prompt and generates. In an empty session, an empty prompt means the model's begin
// token (Tokenizer::bos_id()). Throws Error(usage) if the model has no such token, and
// Error(resource) if the prompt does not fit. After the first token, generate() always returns a
// result and does not throw.
//
// A session can have a pending token, from an earlier generate() or from a saved session. The
// session reads this token before the prompt. If the prompt is empty, the new ids continue the
// earlier generation (with the same random numbers). But if the end of the first text cut a
// character in two, both texts have U+FFFD at this place. After generate(), the last token is
// pending.
//
// If the user cancels before the prompt is read, the result has no ids. The comment of
// Session::prefill says what stays in the session.
GenerateResult generate(Session &session, std::span<const int32_t> prompt,
                        const GenerateOptions &options);

} // namespace keel
