#pragma once

#include "run/session.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Determines which tokens of a text are scored, and which tokens the model has read before a scored
// token.
//
// With windows: the text is divided into windows of `context` tokens. The token that begins a text
// (BOS) is the first token of every window. Each window begins `stride` tokens after the previous
// one. A window scores the tokens that no earlier window scored. So each token of the text is
// scored once, after at least context - stride earlier tokens (fewer in the first window).
//
// With prefix and continuation (`prefix` above 0): the places are spread evenly over the text. At
// each place, a prefix is prefilled, and the policy gets the event "end of the prompt". Most
// policies evict at this event. After the event, the continuation is fed and scored. The first
// token of the continuation is fed but not scored, because the logits for this token were computed
// before the eviction.
//
// Errors name the option of `keel eval` that sets a member: "--window: expected 2 to ...".
struct ScoringOptions {
    // Number of tokens of a window. 0: 512, or the pipeline's context if the context is smaller.
    int64_t context = 0;
    int64_t stride = 0;       // 0 means half of `context`
    int64_t prefix = 0;       // length of the prefix, including BOS; 0 means windows
    int64_t continuation = 0; // number of scored tokens of a place
    int64_t places = 32;      // limit for the number of places; places do not overlap
    // Number of scored tokens that are fed in one step. With 1, tokens are fed in decode steps, so
    // the policy acts as during generation. The tokens before the scored tokens are then a prompt.
    // With more than 1, tokens are fed in chunks of a prompt, so only policies that act between
    // chunks evict. With 0, Keel chooses the number. For windows Keel chooses many tokens. For
    // places Keel chooses many tokens if all policies evict only at the end of the prompt, and
    // otherwise 1 token.
    int64_t step = 0;
    int64_t max_tokens = 0; // limit for the tokens of the text; 0 means all
    // Begin each window with BOS, if the tokenizer adds BOS to texts.
    bool bos = true;
    Progress progress; // reports the stage "scoring", in fed tokens; can throw to stop the scoring
};

// A part of the text: the tokens from `begin` to end - 1. The tokens from `scored` on are scored.
struct ScoreWindow {
    int64_t begin = 0, scored = 0, end = 0;
    int64_t tokens() const { return end - scored; }
};

// A text as tokens.
struct ScoringText {
    std::vector<int32_t> ids;   // without BOS
    std::optional<int32_t> bos; // the token BOS, if each window begins with BOS
};
// Tokenizes a text. Throws Error(usage) if the model has no tokenizer, and Error(input) if the text
// is too short.
ScoringText scoring_text(const Pipeline &pipeline, std::string_view text,
                         const ScoringOptions &options);

// The number of logit rows that a pipeline for scoring needs (PipelineOptions::max_logit_rows): as
// many rows as fit in 64 MiB.
uint32_t scoring_rows(int64_t vocab_size);

// Feeds a text to one session, or to several sessions at the same time.
class ScoringWalk {
  public:
    // Gets one row of logits from each session. The row predicts the token at index `target` of the
    // text.
    using OnRow = std::function<void(int64_t target, std::span<const std::span<const float>> rows)>;
    // Called after each window, while the sessions still hold the window.
    using OnWindow = std::function<void(const ScoreWindow &window)>;

    // The pipelines of the sessions must be made with scoring_rows(). All arguments must outlive
    // this object. Throws Error(usage) for options that are invalid, or that do not fit the text or
    // a pipeline.
    ScoringWalk(std::vector<Session *> sessions, const ScoringText &text,
                const ScoringOptions &options);

    const ScoringOptions &options() const { return options_; } // with the defaults filled in
    const std::vector<ScoreWindow> &windows() const { return windows_; }
    int64_t scored_tokens() const;
    int64_t fed_tokens() const { return total_; } // tokens that each session reads

    void run(const OnRow &on_row, const OnWindow &on_window);

    // The tokens that a session reads for a window.
    struct Feed {
        std::vector<int32_t> ids;
        // The first `prompt` tokens are fed together. The following tokens are fed in steps; each
        // step scores the next token.
        size_t prompt = 0;
        bool has_prompt = false;    // the policy gets the event "end of the prompt"
        bool scores_prompt = false; // the logits after the prompt's last token are scored too
        int64_t first = 0;          // index in the text of the token after ids[0]
    };
    Feed feed_of(const ScoreWindow &window) const;

  private:
    void fill_in();
    void check() const;
    void make_windows();
    void walk(const ScoreWindow &window, const OnRow &on_row);
    int64_t feed_rows(std::span<const int32_t> ids, int64_t begin);
    void give_rows(int64_t n, int64_t target, int64_t end, const OnRow &on_row);
    void advance(int64_t tokens);
    size_t begin_tokens() const { return text_.bos ? 1 : 0; }

    std::vector<Session *> sessions_;
    const ScoringText &text_;
    ScoringOptions options_;
    std::vector<ScoreWindow> windows_;
    int64_t rows_ = 1; // limit for the rows of one step
    int64_t done_ = 0, total_ = 0;
};

} // namespace keel
