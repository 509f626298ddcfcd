#pragma once

#include "eval/scoring/perplexity.hpp"

namespace keel {

// A quantile, with its standard error from a bootstrap over blocks of neighbouring tokens.
struct Quantile {
    double q = 0, value = 0;
    std::optional<double> error;
};

struct DivergenceWindow {
    ScoreWindow where;
    double kl = 0, nll = 0, nll_ref = 0; // means over the window's scored tokens
    double same_top = 0;                 // share of the tokens with the same most likely token
    WindowCache cache, cache_ref;
};

// The comparison of a pipeline with a reference on the same tokens.
struct DivergenceReport {
    std::string first, reference; // for example "models/tiny: weights q4_0, KV f16, policy none"
    ScoringOptions options;       // with the defaults filled in
    uint32_t batch = 1;           // number of windows or places that are scored together
    bool has_bos = false;
    int64_t text_tokens = 0;
    Estimate kl;                     // KL(reference || first), nats
    std::vector<Quantile> quantiles; // quantiles of kl: median, 90%, 99%
    double kl_max = 0;
    // Share of the tokens for which both pipelines have the same most likely token.
    Estimate same_top;
    // The log probability of the true token: first pipeline minus reference. If the difference is
    // below 0, the first pipeline predicts worse.
    Estimate delta_log_p;
    Estimate nll, nll_ref;
    double seconds = 0;
    uint64_t evictions = 0, evictions_ref = 0;
    bool keeps_all = true; // the policy of `first` never evicts
    std::vector<DivergenceWindow> windows;
};

// Scores the text with both pipelines. The pipelines must be made with scoring_rows(), and for the
// same number of sequences (PipelineOptions::batch). If the number of sequences is above 1, several
// windows or places are scored together. Each sequence then scores one window or place at a time.
// Throws Error(input) if the pipelines have different vocabularies or tokens.
DivergenceReport measure_divergence(Pipeline &first, Pipeline &reference, std::string_view text,
                                    const ScoringOptions &options);

std::string divergence_text(const DivergenceReport &report);
nlohmann::ordered_json divergence_json(const DivergenceReport &report, std::string_view version);

} // namespace keel
