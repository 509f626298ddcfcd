#pragma once

#include "eval/scoring/scoring.hpp"
#include "eval/stats/estimate.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// The size of a session's cache after the session has read a window.
struct WindowCache {
    uint64_t evictions = 0;
    int64_t slots = 0; // number of slots in the longest head
    // kv_bytes: bytes of the cache. policy_bytes: bytes of the policy's data outside the cache.
    uint64_t kv_bytes = 0, policy_bytes = 0;
};
WindowCache window_cache(Session &session);

// The result of one window, or of one place. Results of two runs over the same text with the same
// options can be paired by `where.begin`.
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
    uint32_t batch = 1;     // number of windows that took steps together
    bool has_bos = false;   // each window began with BOS (the token that begins a text)
    int64_t text_tokens = 0, fed_tokens = 0;
    Estimate nll; // nats per token
    // Negative log likelihood of each scored token, in the order of the text. Two runs over one
    // text can be paired by the place in this list.
    std::vector<double> token_nll;
    double seconds = 0; // duration of reading and scoring the tokens
    uint64_t evictions = 0;
    uint64_t kv_peak_bytes = 0;   // peak of all caches that were in memory at the same time
    uint64_t held_peak_bytes = 0; // peak of cache and policy data of one window
    std::vector<PerplexityWindow> windows;

    double perplexity() const;
    std::optional<double> perplexity_error() const; // a first-order approximation
    // Tokens read per second.
    double rate() const { return seconds > 0 ? static_cast<double>(fed_tokens) / seconds : 0; }
};

// Divides the scored tokens into blocks of neighbouring tokens, for standard errors. With a prefix:
// one block for each place. With windows: blocks of up to 128 tokens.
std::vector<size_t> score_blocks(const ScoringOptions &options,
                                 const std::vector<ScoreWindow> &windows);

// Scores a text. The pipeline must be made with scoring_rows(). If the pipeline was made for
// several sequences (PipelineOptions::batch), several windows or places are scored together. Each
// sequence then scores one window or place at a time, in a separate session. Scoring together needs
// tokens that are fed one by one. For steps of many tokens the function throws Error(usage),
// because a step of many tokens already reads the weights only once for all tokens.
PerplexityReport measure_perplexity(Pipeline &pipeline, std::string_view text,
                                    const ScoringOptions &options);

// The report as text for the terminal.
std::string perplexity_text(const PerplexityReport &report);
nlohmann::ordered_json perplexity_json(const PerplexityReport &report, std::string_view version);

// Returns a line about the text and the windows of the text. Other reports use this line too.
std::string scoring_text_line(const ScoringOptions &options, bool has_bos, size_t windows);
nlohmann::ordered_json scoring_json(const ScoringOptions &options, bool has_bos);
nlohmann::ordered_json estimate_json(const Estimate &estimate);

} // namespace keel
