#include "eval/scoring/divergence.hpp"

#include "eval/scoring/logits.hpp"
#include "eval/scoring/scoring_batch.hpp"
#include "eval/stats/optional_text.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

std::string describe(Pipeline &p) {
    const std::string key = keel_dtype_name(p.kv_shape().key_dtype),
                      value = keel_dtype_name(p.kv_shape().value_dtype);
    return fmt::format("{}: backend {}, weights {}, KV {}, policy {}", p.source().path(),
                       p.device().plugin(), p.weights().dtype_name(),
                       key == value ? key : key + " and " + value, *p.config().policy.plugin);
}

void check_same_tokens(Pipeline &a, Pipeline &b, const ScoringText &mine,
                       const ScoringText &theirs) {
    if (a.model().vocab_size != b.model().vocab_size) {
        throw_error(ErrorKind::input,
                    "the models have vocabularies of {} and {} tokens; a KL divergence needs the "
                    "same vocabulary",
                    a.model().vocab_size, b.model().vocab_size);
    }
    if (mine.ids != theirs.ids || mine.bos != theirs.bos)
        throw_error(ErrorKind::input,
                    "the tokenizers of the models split the text into different tokens; a KL "
                    "divergence needs equal tokens, so use models with the same tokenizer");
}

// The numbers of each scored token, in the order of the tokens.
struct Samples {
    std::vector<double> kl, same_top, delta, nll, nll_ref;

    void add(const RowDifference &d) {
        kl.push_back(d.kl);
        same_top.push_back(d.same_top ? 1 : 0);
        delta.push_back(d.log_p - d.log_p_ref);
        nll.push_back(-d.log_p);
        nll_ref.push_back(-d.log_p_ref);
    }
    void add(const Samples &more) {
        for (const auto member :
             {&Samples::kl, &Samples::same_top, &Samples::delta, &Samples::nll, &Samples::nll_ref})
            (this->*member)
                .insert((this->*member).end(), (more.*member).begin(), (more.*member).end());
    }
};

double mean(const std::vector<double> &values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

// A pipeline with its first session. If the pipeline has a batch (PipelineOptions::batch), the
// session belongs to the batch.
struct Side {
    explicit Side(Pipeline &pipeline)
        : batch(pipeline.batch() > 1 ? std::make_unique<SessionBatch>(pipeline) : nullptr),
          session(batch ? batch->make_session() : std::make_unique<Session>(pipeline)) {}
    std::unique_ptr<SessionBatch> batch;
    std::unique_ptr<Session> session;
};

} // namespace

DivergenceReport measure_divergence(Pipeline &first, Pipeline &reference, std::string_view text,
                                    const ScoringOptions &options) {
    const ScoringText ready = scoring_text(first, text, options);
    check_same_tokens(first, reference, ready, scoring_text(reference, text, options));
    const Side mine(first), theirs(reference);
    ScoringWalk walk({mine.session.get(), theirs.session.get()}, ready, options);
    DivergenceReport r;
    r.first = describe(first);
    r.reference = describe(reference);
    r.options = walk.options();
    r.has_bos = ready.bos.has_value();
    r.text_tokens = std::ssize(ready.ids);
    r.keeps_all = first.policy_setup().keeps_all();
    r.batch = first.batch();

    r.windows.resize(walk.windows().size());
    std::vector<Samples> of_windows(walk.windows().size());
    const auto note_row = [&](size_t window, int64_t target,
                              std::span<const std::span<const float>> rows) {
        of_windows[window].add(
            compare_rows(rows[0], rows[1], ready.ids[static_cast<size_t>(target)]));
    };
    const auto note_window = [&](size_t index, std::span<Session *const> sessions) {
        const Samples &samples = of_windows[index];
        DivergenceWindow &w = r.windows[index];
        w.where = walk.windows()[index];
        w.kl = mean(samples.kl);
        w.nll = mean(samples.nll);
        w.nll_ref = mean(samples.nll_ref);
        w.same_top = mean(samples.same_top);
        w.cache = window_cache(*sessions[0]);
        w.cache_ref = window_cache(*sessions[1]);
        r.evictions += w.cache.evictions;
        r.evictions_ref += w.cache_ref.evictions;
    };
    const auto start = std::chrono::steady_clock::now();
    if (mine.batch || theirs.batch) {
        const ScoringSide sides[] = {{mine.batch.get(), mine.session.get()},
                                     {theirs.batch.get(), theirs.session.get()}};
        score_side_by_side(sides, walk, note_row, note_window);
    } else {
        Session *const sessions[] = {mine.session.get(), theirs.session.get()};
        size_t index = 0;
        walk.run(
            [&](int64_t target, std::span<const std::span<const float>> rows) {
                note_row(index, target, rows);
            },
            [&](const ScoreWindow &) { note_window(index++, sessions); });
    }
    Samples samples;
    for (const Samples &of_window : of_windows) samples.add(of_window);
    r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

    const std::vector<size_t> blocks = score_blocks(r.options, walk.windows());
    r.kl = estimate(samples.kl, blocks);
    r.same_top = estimate(samples.same_top, blocks);
    r.delta_log_p = estimate(samples.delta, blocks);
    r.nll = estimate(samples.nll, blocks);
    r.nll_ref = estimate(samples.nll_ref, blocks);
    std::vector<double> sorted = samples.kl;
    std::sort(sorted.begin(), sorted.end());
    r.kl_max = sorted.back();
    for (const double q : {0.5, 0.9, 0.99}) {
        const auto of_resample = [q](std::vector<double> &values) {
            const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::lround(
                                                 q * static_cast<double>(values.size() - 1)));
            std::nth_element(values.begin(), at, values.end());
            return *at;
        };
        r.quantiles.push_back(
            {q, quantile(sorted, q), bootstrap_error(samples.kl, blocks, of_resample)});
    }
    return r;
}

std::string divergence_text(const DivergenceReport &r) {
    std::string out;
    if (!r.keeps_all && r.evictions == 0)
        out += "warning: the policy evicted nothing, so these numbers do not measure it; to let it "
               "act, use a smaller budget, longer windows, --step 1 or --prefix\n\n";
    out += fmt::format("this:      {}\nreference: {}\n", r.first, r.reference);
    out += scoring_text_line(r.options, r.has_bos, r.windows.size());
    out += fmt::format("{} of {} tokens scored in {:.1f} s{}; evictions {}, reference {}\n",
                       r.kl.count, r.text_tokens, r.seconds,
                       r.batch > 1 ? fmt::format(", {} together", r.batch) : "", r.evictions,
                       r.evictions_ref);
    out += fmt::format("\nKL(reference || this), nats per token\n  mean    {:.6f}{}\n", r.kl.mean,
                       plus_minus(r.kl.error));
    for (const Quantile &q : r.quantiles) {
        out += fmt::format("  {:<7} {:.6f}{}\n",
                           q.q == 0.5 ? "median" : fmt::format("{:.0f}%", 100 * q.q), q.value,
                           plus_minus(q.error));
    }
    out += fmt::format("  max     {:.6f}\n", r.kl_max);
    out += fmt::format("same most likely token: {:.2f}%", 100 * r.same_top.mean);
    if (r.same_top.error) out += fmt::format(" +- {:.2f}%", 100 * *r.same_top.error);
    out += fmt::format("\nlog p of the true token, this minus reference: {:.5f}{}\n",
                       r.delta_log_p.mean, plus_minus(r.delta_log_p.error));
    out += fmt::format(
        "perplexity: {:.4f}, reference {:.4f}, ratio {:.5f}{}\n", std::exp(r.nll.mean),
        std::exp(r.nll_ref.mean), std::exp(-r.delta_log_p.mean),
        r.delta_log_p.error ? plus_minus(std::exp(-r.delta_log_p.mean) * *r.delta_log_p.error)
                            : std::string{});
    if (r.kl.error)
        out += fmt::format("errors are standard errors over {} blocks of neighbouring tokens\n",
                           r.kl.blocks);
    return out;
}

Json divergence_json(const DivergenceReport &r, std::string_view version) {
    Json quantiles = Json::array(), windows = Json::array();
    for (const Quantile &q : r.quantiles)
        quantiles.push_back({{"q", q.q}, {"value", q.value}, {"error", optional_json(q.error)}});
    const auto cache = [](const WindowCache &c) {
        return Json{{"evictions", c.evictions},
                    {"slots", c.slots},
                    {"kv_bytes", c.kv_bytes},
                    {"policy_bytes", c.policy_bytes}};
    };
    for (const DivergenceWindow &w : r.windows) {
        windows.push_back({{"begin", w.where.begin},
                           {"scored", w.where.scored},
                           {"tokens", w.where.tokens()},
                           {"kl", w.kl},
                           {"nll", w.nll},
                           {"nll_reference", w.nll_ref},
                           {"same_top", w.same_top},
                           {"cache", cache(w.cache)},
                           {"cache_reference", cache(w.cache_ref)}});
    }
    return {{"version", version},
            {"this", r.first},
            {"reference", r.reference},
            {"scoring", scoring_json(r.options, r.has_bos)},
            {"batch", r.batch},
            {"text_tokens", r.text_tokens},
            {"tokens", r.kl.count},
            {"kl", estimate_json(r.kl)},
            {"kl_quantiles", std::move(quantiles)},
            {"kl_max", r.kl_max},
            {"same_top", estimate_json(r.same_top)},
            {"delta_log_p", estimate_json(r.delta_log_p)},
            {"nll", estimate_json(r.nll)},
            {"nll_reference", estimate_json(r.nll_ref)},
            {"perplexity", std::exp(r.nll.mean)},
            {"perplexity_reference", std::exp(r.nll_ref.mean)},
            {"perplexity_ratio", std::exp(-r.delta_log_p.mean)},
            {"seconds", r.seconds},
            {"evictions", r.evictions},
            {"evictions_reference", r.evictions_ref},
            {"windows", std::move(windows)}};
}

} // namespace keel
