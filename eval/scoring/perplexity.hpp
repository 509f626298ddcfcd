#pragma once

#include "eval/scoring/scoring.hpp"
#include "eval/stats/estimate.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// What a session held after a window.
struct WindowCache {
    uint64_t evictions = 0;
    int64_t slots = 0;                       // of the longest head
    uint64_t kv_bytes = 0, policy_bytes = 0; // of the cache; of the policy beside it
};
WindowCache window_cache(Session &session);

// One window, or one place. Results of two runs over the same text and options can be paired by
// `begin`.
struct PerplexityWindow {
    ScoreWindow where;
    double nll = 0; // mean over its scored tokens, nats
    WindowCache cache;
};

struct PerplexityReport {
    std::string model, weights, policy;
    keel_dtype key_dtype = KEEL_DTYPE_NONE, value_dtype = KEEL_DTYPE_NONE;
    bool keeps_all = true;  // the policy evicts nothing, ever
    ScoringOptions options; // defaults filled in
    uint32_t batch = 1;     // windows that took steps together, at most
    bool has_bos = false;   // a token that begins a text stood in front of each window
    int64_t text_tokens = 0, fed_tokens = 0;
    Estimate nll; // nats per token
    std::vector<double>
        token_nll; // of each scored token, in the order of the text; pairs two runs over one text
    double seconds = 0; // of taking tokens in and scoring them
    uint64_t evictions = 0;
    uint64_t kv_peak_bytes = 0;   // of the caches of all windows that were in memory at once
    uint64_t held_peak_bytes = 0; // of cache plus policy of one window
    std::vector<PerplexityWindow> windows;

    double perplexity() const;
    std::optional<double> perplexity_error() const; // to first order
    double rate() const {
        return seconds > 0 ? static_cast<double>(fed_tokens) / seconds : 0;
    } // tokens per second
};

// Blocks of neighbouring tokens for errors: places where there are such, else runs of up to 128
// tokens.
std::vector<size_t> score_blocks(const ScoringOptions &options,
                                 const std::vector<ScoreWindow> &windows);

// Scores a text. The pipeline was made with scoring_rows(). If it was made for several sequences
// (PipelineOptions::batch), that many windows or places are scored together, each in its own
// session. This is only for tokens that are taken in one by one. Else throws Error(usage), because
// taking in many tokens at a time already reads the weights once for all of them.
PerplexityReport measure_perplexity(Pipeline &pipeline, std::string_view text,
                                    const ScoringOptions &options);

// What a person reads.
std::string perplexity_text(const PerplexityReport &report);
nlohmann::ordered_json perplexity_json(const PerplexityReport &report, std::string_view version);

// Shared with other reports: how the text was walked.
std::string scoring_text_line(const ScoringOptions &options, bool has_bos, size_t windows);
nlohmann::ordered_json scoring_json(const ScoringOptions &options, bool has_bos);
nlohmann::ordered_json estimate_json(const Estimate &estimate);

} // namespace keel
