#pragma once

#include "run/session.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Which tokens of a text are scored, and what stands before each of them.
//
// Windows: the text is walked in windows of `context` tokens (the token that begins a text is one
// of them, and begins every window), each `stride` tokens further on than the one before. A window
// scores the tokens that no earlier window scored. So each token of the text is scored once, after
// at least context - stride other tokens (fewer in the first window).
//
// Prefix and continuation (`prefix` above 0): at places spread evenly over the text a prefix is
// prefilled and the policy told that the prompt has ended, which is when most of them evict. Then
// the continuation is fed and scored. Its first token is fed and not scored: its logits were there
// before anything was evicted.
//
// Errors name the option of keel eval that sets a member: "--window: expected 2 to ...".
struct ScoringOptions {
    int64_t context = 0; // tokens of a window; 0: 512, or the pipeline's context where that is less
    int64_t stride = 0;  // 0: half of it
    int64_t prefix = 0;  // tokens, the one that begins a text included; 0: windows
    int64_t continuation = 0; // tokens that are scored at a place
    int64_t places = 32;      // at most; they do not overlap
    // Tokens that are taken in at a time where they are scored. 1: decode steps, so that the policy
    // acts as when text is written (what stands before is a prompt then). More: pieces of a prompt,
    // between which only block-wise policies evict. 0: windows take many; prefix and continuation
    // take many if the policy evicts nothing but at the prompt's end, else one.
    int64_t step = 0;
    int64_t max_tokens = 0; // of the text; 0: all
    bool bos = true;        // put the token that begins a text in front, if the tokenizer does so
    Progress progress;      // stage "scoring", tokens taken in; may throw to stop
};

// A stretch of the text: tokens begin..end-1 stand in it, those from `scored` on are scored.
struct ScoreWindow {
    int64_t begin = 0, scored = 0, end = 0;
    int64_t tokens() const { return end - scored; }
};

// A text made ready for scoring.
struct ScoringText {
    std::vector<int32_t> ids;   // without the token that begins it
    std::optional<int32_t> bos; // the token that begins each window
};
// Throws Error(usage) for a model without a tokenizer, Error(input) for a text that is too short to
// score.
ScoringText scoring_text(const Pipeline &pipeline, std::string_view text,
                         const ScoringOptions &options);

// Rows of logits that a pipeline for scoring is to be made with (PipelineOptions::max_logit_rows):
// as many as fit in 64 MiB.
uint32_t scoring_rows(int64_t vocab_size);

// Walks a text with one session, or with several that take in the same tokens at the same time.
class ScoringWalk {
  public:
    // One row of logits for each session: what it expects at `target`, an index into the text.
    using OnRow = std::function<void(int64_t target, std::span<const std::span<const float>> rows)>;
    // A window is done; the sessions still hold it.
    using OnWindow = std::function<void(const ScoreWindow &window)>;

    // The sessions' pipelines were made with scoring_rows. All of them outlive this. Throws
    // Error(usage) for options that make no sense or do not fit the text or a pipeline.
    ScoringWalk(std::vector<Session *> sessions, const ScoringText &text,
                const ScoringOptions &options);

    const ScoringOptions &options() const { return options_; } // with the defaults filled in
    const std::vector<ScoreWindow> &windows() const { return windows_; }
    int64_t scored_tokens() const;
    int64_t fed_tokens() const { return total_; } // by each session

    void run(const OnRow &on_row, const OnWindow &on_window);

    // What a window has a session take in.
    struct Feed {
        std::vector<int32_t> ids;
        size_t prompt =
            0; // so many of them at once; the rest by steps, each of which scores what follows
        bool has_prompt = false;    // the policy is told that it has ended
        bool scores_prompt = false; // its last token's row counts, too
        int64_t first = 0;          // index in the text of what stands behind ids[0]
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
    int64_t rows_ = 1; // at a time
    int64_t done_ = 0, total_ = 0;
};

} // namespace keel
