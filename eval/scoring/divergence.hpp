#pragma once

#include "eval/scoring/perplexity.hpp"

namespace keel {

// A statistic other than a mean, with the error of a bootstrap over blocks of neighbours.
struct Quantile {
    double q = 0, value = 0;
    std::optional<double> error;
};

struct DivergenceWindow {
    ScoreWindow where;
    double kl = 0, nll = 0, nll_ref = 0; // means over its scored tokens
    double same_top = 0;                 // share
    WindowCache cache, cache_ref;
};

// A pipeline beside a reference, over the same tokens.
struct DivergenceReport {
    std::string first, reference; // "models/tiny: weights q4_0, KV f16, policy none"
    ScoringOptions options;       // defaults filled in
    uint32_t batch = 1;           // windows or places at once
    bool has_bos = false;
    int64_t text_tokens = 0;
    Estimate kl;                     // KL(reference || first), nats
    std::vector<Quantile> quantiles; // of it: median, 90 %, 99 %
    double kl_max = 0;
    Estimate same_top; // share of tokens where both have the same most likely one
    Estimate
        delta_log_p; // log p of the true token, first minus reference: below 0, the first is worse
    Estimate nll, nll_ref;
    double seconds = 0;
    uint64_t evictions = 0, evictions_ref = 0;
    bool keeps_all = true;
    std::vector<DivergenceWindow> windows;
};

// Both pipelines were made with scoring_rows(), and for the same number of sequences at once
// (PipelineOptions::batch): if it is above 1, that many windows or places are scored together.
// Throws Error(input) if they do not have the same vocabulary and tokens.
DivergenceReport measure_divergence(Pipeline &first, Pipeline &reference, std::string_view text,
                                    const ScoringOptions &options);

std::string divergence_text(const DivergenceReport &report);
nlohmann::ordered_json divergence_json(const DivergenceReport &report, std::string_view version);

} // namespace keel
