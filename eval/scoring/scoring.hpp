#pragma once

#include "run/session.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// The tokens of a text that are scored, and the tokens before each of them.
//
// Windows: the text is divided into windows of `context` tokens. The token that begins a text is
// one of them, and begins every window. Each window begins `stride` tokens after the one before it.
// A window scores the tokens that no earlier window scored. So each token of the text is scored
// once, after at least context - stride other tokens (fewer in the first window).
//
// Prefix and continuation (`prefix` above 0): the places are spread evenly over the text. At each
// place a prefix is prefilled, and the policy is told that the prompt has ended. Most policies
// evict then. After that the continuation is fed and scored. Its first token is fed but not scored,
// because its logits were computed before the eviction.
//
// Errors name the option of keel eval that sets a member: "--window: expected 2 to ...".
struct ScoringOptions {
    // Tokens of a window. 0: 512, or the pipeline's context if it is smaller.
    int64_t context = 0;
    int64_t stride = 0;       // 0: half of the context
    int64_t prefix = 0;       // tokens with the one that begins a text; 0: windows
    int64_t continuation = 0; // scored tokens of a place
    int64_t places = 32;      // the most places; they do not overlap
    // The number of tokens that are fed at a time while they are scored. 1: decode steps, so the
    // policy acts as during generation, and the tokens before them are a prompt. More: chunks of a
    // prompt, between which only block-wise policies evict. 0: many for windows; for prefix and
    // continuation many if all policies evict only at the prompt's end, else 1.
    int64_t step = 0;
    int64_t max_tokens = 0; // the most tokens of the text; 0: all
    // Begin each window with the token that begins a text, if the tokenizer does so.
    bool bos = true;
    Progress progress; // stage "scoring", in fed tokens; may throw to stop
};

// A part of the text: the tokens begin..end-1. Those from `scored` on are scored.
struct ScoreWindow {
    int64_t begin = 0, scored = 0, end = 0;
    int64_t tokens() const { return end - scored; }
};

// A text as tokens.
struct ScoringText {
    std::vector<int32_t> ids;   // without the token that begins a text
    std::optional<int32_t> bos; // the token that begins each window, if any
};
// Throws Error(usage) for a model without a tokenizer, and Error(input) for a text that is too
// short.
ScoringText scoring_text(const Pipeline &pipeline, std::string_view text,
                         const ScoringOptions &options);

// The rows of logits that a pipeline for scoring needs (PipelineOptions::max_logit_rows): as many
// as fit in 64 MiB.
uint32_t scoring_rows(int64_t vocab_size);

// Feeds a text to one session, or the same tokens to several sessions at the same time.
class ScoringWalk {
  public:
    // Gets one row of logits of each session: its prediction of the token at index `target` of the
    // text.
    using OnRow = std::function<void(int64_t target, std::span<const std::span<const float>> rows)>;
    // Called after a window. The sessions still hold it.
    using OnWindow = std::function<void(const ScoreWindow &window)>;

    // The sessions' pipelines must be made with scoring_rows(). All of them must outlive this
    // object. Throws Error(usage) for options that are invalid or do not fit the text or a
    // pipeline.
    ScoringWalk(std::vector<Session *> sessions, const ScoringText &text,
                const ScoringOptions &options);

    const ScoringOptions &options() const { return options_; } // with the defaults filled in
    const std::vector<ScoreWindow> &windows() const { return windows_; }
    int64_t scored_tokens() const;
    int64_t fed_tokens() const { return total_; } // by each session

    void run(const OnRow &on_row, const OnWindow &on_window);

    // The tokens that a session takes in for a window.
    struct Feed {
        std::vector<int32_t> ids;
        // The first `prompt` tokens are fed together. The others are fed in steps, and each step
        // scores the next token.
        size_t prompt = 0;
        bool has_prompt = false;    // the policy is told that the prompt has ended
        bool scores_prompt = false; // the row of the prompt's last token is scored too
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
    int64_t rows_ = 1; // the most rows of one step
    int64_t done_ = 0, total_ = 0;
};

} // namespace keel
