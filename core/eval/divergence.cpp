#include "eval/divergence.hpp"

#include "eval/logits.hpp"

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
    return fmt::format("{}: backend {}, weights {}, KV {}, policy {}", p.source().path(), p.device().plugin(),
                       p.weights().dtype_name(), key == value ? key : key + " and " + value,
                       *p.config().policy.plugin);
}

void check_same_tokens(Pipeline &a, Pipeline &b, const ScoringText &mine, const ScoringText &theirs) {
    if (a.model().vocab_size != b.model().vocab_size) {
        throw_error(
            ErrorKind::input,
            "the two models have vocabularies of {} and {} tokens; a KL divergence needs the same one",
            a.model().vocab_size, b.model().vocab_size);
    }
    if (mine.ids != theirs.ids || mine.bos != theirs.bos)
        throw_error(ErrorKind::input, "the two models' tokenizers make different tokens of the text; a KL "
                                      "divergence needs the same ones");
}

std::string plus_minus(const std::optional<double> &error) {
    return error ? fmt::format(" +- {:.2g}", *error) : std::string{};
}

Json optional_json(const std::optional<double> &value) {
    return value ? Json(*value) : Json(nullptr);
}

// What each scored token gave, in order.
struct Samples {
    std::vector<double> kl, same_top, delta, nll, nll_ref;

    void add(const RowDifference &d) {
        kl.push_back(d.kl);
        same_top.push_back(d.same_top ? 1 : 0);
        delta.push_back(d.log_p - d.log_p_ref);
        nll.push_back(-d.log_p);
        nll_ref.push_back(-d.log_p_ref);
    }
};

double mean_from(const std::vector<double> &values, size_t begin) {
    double sum = 0;
    for (size_t i = begin; i < values.size(); ++i)
        sum += values[i];
    return sum / static_cast<double>(values.size() - begin);
}

} // namespace

DivergenceReport measure_divergence(Pipeline &first, Pipeline &reference, std::string_view text,
                                    const ScoringOptions &options) {
    const ScoringText ready = scoring_text(first, text, options);
    check_same_tokens(first, reference, ready, scoring_text(reference, text, options));
    Session session(first), session_ref(reference);
    ScoringWalk walk({&session, &session_ref}, ready, options);
    DivergenceReport r;
    r.first = describe(first);
    r.reference = describe(reference);
    r.options = walk.options();
    r.has_bos = ready.bos.has_value();
    r.text_tokens = std::ssize(ready.ids);
    r.keeps_all = first.cache_plan().keeps_all();

    Samples samples;
    size_t of_window = 0;
    const auto start = std::chrono::steady_clock::now();
    walk.run(
        [&](int64_t target, std::span<const std::span<const float>> rows) {
            samples.add(compare_rows(rows[0], rows[1], ready.ids[static_cast<size_t>(target)]));
        },
        [&](const ScoreWindow &window) {
            DivergenceWindow w;
            w.where = window;
            w.kl = mean_from(samples.kl, of_window);
            w.nll = mean_from(samples.nll, of_window);
            w.nll_ref = mean_from(samples.nll_ref, of_window);
            w.same_top = mean_from(samples.same_top, of_window);
            w.cache = window_cache(session);
            w.cache_ref = window_cache(session_ref);
            of_window = samples.kl.size();
            r.evictions += w.cache.evictions;
            r.evictions_ref += w.cache_ref.evictions;
            r.windows.push_back(w);
        });
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
            const auto at = values.begin() + static_cast<std::ptrdiff_t>(
                                                 std::lround(q * static_cast<double>(values.size() - 1)));
            std::nth_element(values.begin(), at, values.end());
            return *at;
        };
        r.quantiles.push_back({q, quantile(sorted, q), bootstrap_error(samples.kl, blocks, of_resample)});
    }
    return r;
}

std::string divergence_text(const DivergenceReport &r) {
    std::string out = fmt::format("this:      {}\nreference: {}\n", r.first, r.reference);
    out += scoring_text_line(r.options, r.has_bos, r.windows.size());
    out += fmt::format("{} of {} tokens scored in {:.1f} s; evictions {}, reference {}\n", r.kl.count,
                       r.text_tokens, r.seconds, r.evictions, r.evictions_ref);
    if (!r.keeps_all && r.evictions == 0)
        out +=
            "the policy evicted nothing here: a smaller budget, longer windows, --step 1 or --prefix let it "
            "act\n";
    out += fmt::format("\nKL(reference || this), nats a token\n  mean    {:.6f}{}\n", r.kl.mean,
                       plus_minus(r.kl.error));
    for (const Quantile &q : r.quantiles) {
        out += fmt::format("  {:<7} {:.6f}{}\n", q.q == 0.5 ? "median" : fmt::format("{:.0f}%", 100 * q.q),
                           q.value, plus_minus(q.error));
    }
    out += fmt::format("  max     {:.6f}\n", r.kl_max);
    out += fmt::format("same most likely token: {:.2f}%", 100 * r.same_top.mean);
    if (r.same_top.error) out += fmt::format(" +- {:.2f}%", 100 * *r.same_top.error);
    out += fmt::format("\nlog p of the true token, this minus reference: {:.5f}{}\n", r.delta_log_p.mean,
                       plus_minus(r.delta_log_p.error));
    out += fmt::format("perplexity: {:.4f}, reference {:.4f}, ratio {:.5f}{}\n", std::exp(r.nll.mean),
                       std::exp(r.nll_ref.mean), std::exp(-r.delta_log_p.mean),
                       r.delta_log_p.error ? plus_minus(std::exp(-r.delta_log_p.mean) * *r.delta_log_p.error)
                                           : std::string{});
    if (r.kl.error)
        out += fmt::format("errors are standard errors over {} blocks of neighbouring tokens\n", r.kl.blocks);
    return out;
}

Json divergence_json(const DivergenceReport &r, std::string_view version) {
    Json quantiles = Json::array(), windows = Json::array();
    for (const Quantile &q : r.quantiles)
        quantiles.push_back({{"q", q.q}, {"value", q.value}, {"error", optional_json(q.error)}});
    const auto cache = [](const WindowCache &c) {
        return Json{{"evictions", c.evictions}, {"slots", c.slots}, {"kv_bytes", c.kv_bytes}};
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
