#include "eval/scoring/perplexity.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"
#include "eval/scoring/logits.hpp"
#include "eval/scoring/scoring_batch.hpp"
#include "eval/stats/optional_text.hpp"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

} // namespace

WindowCache window_cache(Session &session) {
    const SessionStats &stats = session.stats();
    return {stats.evictions, session.cache().cache().max_length(), stats.kv_bytes,
            stats.policy_bytes};
}

double PerplexityReport::perplexity() const { return std::exp(nll.mean); }

std::optional<double> PerplexityReport::perplexity_error() const {
    if (!nll.error) return std::nullopt;
    return perplexity() * *nll.error;
}

std::vector<size_t> score_blocks(const ScoringOptions &options,
                                 const std::vector<ScoreWindow> &windows) {
    std::vector<size_t> blocks;
    size_t tokens = 0;
    for (const ScoreWindow &w : windows) {
        blocks.push_back(static_cast<size_t>(w.tokens()));
        tokens += blocks.back();
    }
    constexpr size_t neighbours = 128;
    return options.prefix > 0 ? blocks : even_blocks(tokens, neighbours);
}

PerplexityReport measure_perplexity(Pipeline &pipeline, std::string_view text,
                                    const ScoringOptions &options) {
    const ScoringText ready = scoring_text(pipeline, text, options);
    std::optional<SessionBatch> batch;
    if (pipeline.batch() > 1) batch.emplace(pipeline);
    const std::unique_ptr<Session> first =
        batch ? batch->make_session() : std::make_unique<Session>(pipeline);
    ScoringWalk walk({first.get()}, ready, options);
    PerplexityReport r;
    r.model = pipeline.source().path();
    r.weights = pipeline.weights().dtype_name();
    r.policy = *pipeline.config().policy.plugin;
    r.keeps_all = pipeline.policy_setup().keeps_all();
    r.key_dtype = pipeline.kv_shape().key_dtype;
    r.value_dtype = pipeline.kv_shape().value_dtype;
    r.options = walk.options();
    r.has_bos = ready.bos.has_value();
    r.text_tokens = std::ssize(ready.ids);
    r.fed_tokens = walk.fed_tokens();

    r.batch = pipeline.batch();
    r.windows.resize(walk.windows().size());
    std::vector<std::vector<double>> values(walk.windows().size()); // in nats
    const auto note_row = [&](size_t window, int64_t target, std::span<const float> row) {
        values[window].push_back(-log_probability(row, ready.ids[static_cast<size_t>(target)]));
    };
    const auto note_window = [&](size_t index, Session &session) {
        PerplexityWindow &w = r.windows[index];
        w = {walk.windows()[index], 0, window_cache(session)};
        for (const double value : values[index])
            w.nll += value / static_cast<double>(w.where.tokens());
        r.evictions += w.cache.evictions;
        r.kv_peak_bytes = std::max(r.kv_peak_bytes, session.stats().kv_peak_bytes);
        r.held_peak_bytes = std::max(r.held_peak_bytes, session.stats().held_peak_bytes);
    };
    const auto start = std::chrono::steady_clock::now();
    if (batch) {
        const ScoringSide side = {&*batch, first.get()};
        score_side_by_side(
            {&side, 1}, walk,
            [&](size_t window, int64_t target, std::span<const std::span<const float>> rows) {
                note_row(window, target, rows[0]);
            },
            [&](size_t window, std::span<Session *const> sessions) {
                note_window(window, *sessions[0]);
            });
    } else {
        size_t index = 0;
        walk.run(
            [&](int64_t target, std::span<const std::span<const float>> rows) {
                note_row(index, target, rows[0]);
            },
            [&](const ScoreWindow &) { note_window(index++, *first); });
    }
    r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const std::vector<double> &of_window : values)
        r.token_nll.insert(r.token_nll.end(), of_window.begin(), of_window.end());
    r.nll = estimate(r.token_nll, score_blocks(r.options, walk.windows()));
    return r;
}

std::string scoring_text_line(const ScoringOptions &o, bool has_bos, size_t windows) {
    const std::string front = has_bos ? ", each begins with the token that begins a text"
                                      : ", without a token that begins a text";
    const std::string step = o.step == 1 ? "one by one" : "many at a time";
    if (o.prefix > 0) {
        return fmt::format("{}: a prefix of {}, then {} scored {}{}\n", counted(windows, "place"),
                           counted(static_cast<uint64_t>(o.prefix), "token"),
                           counted(static_cast<uint64_t>(o.continuation), "token"), step, front);
    }
    return fmt::format("{} of up to {} tokens, {} apart, scored {}{}\n", counted(windows, "window"),
                       o.context, o.stride, step, front);
}

std::string perplexity_text(const PerplexityReport &r) {
    const std::string key = keel_dtype_name(r.key_dtype), value = keel_dtype_name(r.value_dtype);
    std::string out = fmt::format("{}: weights {}, KV {}, policy {}\n", r.model, r.weights,
                                  key == value ? key : key + " and " + value, r.policy);
    out += scoring_text_line(r.options, r.has_bos, r.windows.size());
    out += fmt::format(
        "{} of {} tokens scored in {:.1f} s, {:.0f} tokens read per second{}; cache and "
        "policy at most {}{}; {}\n",
        r.nll.count, r.text_tokens, r.seconds, r.rate(),
        r.batch > 1 ? fmt::format(", {} together", r.batch) : "", format_bytes(r.held_peak_bytes),
        r.batch > 1 ? " each" : "", counted(r.evictions, "eviction"));
    if (!r.keeps_all && r.evictions == 0) {
        out += fmt::format("policy {} evicted nothing here, so the numbers are those of a full "
                           "cache; to let the policy "
                           "act, use a smaller budget, longer windows, --step 1 or --prefix\n",
                           r.policy);
    }
    out += fmt::format("nll        {:.4f}{} nats per token", r.nll.mean, plus_minus(r.nll.error));
    if (r.nll.error && r.nll.error_independent)
        out += fmt::format(
            " ({} of neighbouring tokens; {:.2g} if tokens were independent, but they are not)",
            counted(r.nll.blocks, "block"), *r.nll.error_independent);
    out += fmt::format("\nperplexity {:.4f}{}\n", r.perplexity(), plus_minus(r.perplexity_error()));
    return out;
}

Json estimate_json(const Estimate &e) {
    return {{"mean", e.mean},
            {"error", optional_json(e.error)},
            {"error_if_independent", optional_json(e.error_independent)},
            {"count", e.count},
            {"blocks", e.blocks}};
}

Json scoring_json(const ScoringOptions &o, bool has_bos) {
    Json json = {{"mode", o.prefix > 0 ? "prefix" : "windows"}};
    if (o.prefix > 0) {
        json["prefix"] = o.prefix;
        json["continuation"] = o.continuation;
    } else {
        json["context"] = o.context;
        json["stride"] = o.stride;
    }
    json["one_by_one"] = o.step == 1;
    json["bos"] = has_bos;
    return json;
}

Json perplexity_json(const PerplexityReport &r, std::string_view version) {
    Json windows = Json::array();
    for (const PerplexityWindow &w : r.windows) {
        windows.push_back({{"begin", w.where.begin},
                           {"scored", w.where.scored},
                           {"tokens", w.where.tokens()},
                           {"nll", w.nll},
                           {"evictions", w.cache.evictions},
                           {"slots", w.cache.slots},
                           {"kv_bytes", w.cache.kv_bytes},
                           {"policy_bytes", w.cache.policy_bytes}});
    }
    return {{"version", version},
            {"model", r.model},
            {"weights", r.weights},
            {"kv",
             {{"key_dtype", keel_dtype_name(r.key_dtype)},
              {"value_dtype", keel_dtype_name(r.value_dtype)}}},
            {"policy", r.policy},
            {"scoring", scoring_json(r.options, r.has_bos)},
            {"batch", r.batch},
            {"text_tokens", r.text_tokens},
            {"tokens", r.nll.count},
            {"nll", estimate_json(r.nll)},
            {"perplexity", r.perplexity()},
            {"perplexity_error", optional_json(r.perplexity_error())},
            {"seconds", r.seconds},
            {"tokens_per_second", r.rate()},
            {"evictions", r.evictions},
            {"kv_peak_bytes", r.kv_peak_bytes},
            {"held_peak_bytes", r.held_peak_bytes},
            {"windows", std::move(windows)}};
}

} // namespace keel
