#pragma once

#include "eval/scoring/scoring.hpp"
#include "eval/stats/estimate.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// The size of a session's cache after a window.
struct WindowCache {
    uint64_t evictions = 0;
    int64_t slots = 0; // slots of the longest head
    // kv_bytes: of the cache; policy_bytes: of the policy besides the cache
    uint64_t kv_bytes = 0, policy_bytes = 0;
};
WindowCache window_cache(Session &session);

// One window, or one place. Two runs over the same text with the same options can be paired by
// `begin`.
struct PerplexityWindow {
    ScoreWindow where;
    double nll = 0; // mean over the window's scored tokens, in nats
    WindowCache cache;
};

struct PerplexityReport {
    std::string model, weights, policy;
    keel_dtype key_dtype = KEEL_DTYPE_NONE, value_dtype = KEEL_DTYPE_NONE;
    bool keeps_all = true;  // the policy never evicts
    ScoringOptions options; // with the defaults filled in
    uint32_t batch = 1;     // the most windows that took steps together
    bool has_bos = false;   // each window began with the token that begins a text
    int64_t text_tokens = 0, fed_tokens = 0;
    Estimate nll; // nats per token
    // Of each scored token, in the order of the text. With it two runs over one text can be paired.
    std::vector<double> token_nll;
    double seconds = 0; // time for feeding and scoring tokens
    uint64_t evictions = 0;
    uint64_t kv_peak_bytes = 0;   // of the caches of all windows that were in memory together
    uint64_t held_peak_bytes = 0; // the peak of cache plus policy of one window
    std::vector<PerplexityWindow> windows;

    double perplexity() const;
    std::optional<double> perplexity_error() const; // first-order approximation
    double rate() const {
        return seconds > 0 ? static_cast<double>(fed_tokens) / seconds : 0;
    } // tokens per second
};

// Blocks of neighbouring tokens for standard errors. With a prefix: one block for each place. Else
// blocks of up to 128 tokens.
std::vector<size_t> score_blocks(const ScoringOptions &options,
                                 const std::vector<ScoreWindow> &windows);

// Scores a text. The pipeline must be made with scoring_rows(). If it was made for several
// sequences (PipelineOptions::batch), that many windows or places are scored together, each in its
// own session. This works only if tokens are fed one by one. Else it throws Error(usage), because
// feeding many tokens at a time already reads the weights once for all of them.
PerplexityReport measure_perplexity(Pipeline &pipeline, std::string_view text,
                                    const ScoringOptions &options);

// The report as text for the terminal.
std::string perplexity_text(const PerplexityReport &report);
nlohmann::ordered_json perplexity_json(const PerplexityReport &report, std::string_view version);

// Used by other reports too: a line about the text and its windows.
std::string scoring_text_line(const ScoringOptions &options, bool has_bos, size_t windows);
nlohmann::ordered_json scoring_json(const ScoringOptions &options, bool has_bos);
nlohmann::ordered_json estimate_json(const Estimate &estimate);

} // namespace keel
