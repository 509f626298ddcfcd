#include "convert.hpp"

#include "errors.hpp"

#include <algorithm>

namespace keel::api {
namespace {

template <typename T>
void check_option(bool is_right, const char *option, const char *expected, T found) {
    if (!is_right)
        throw_error(keel::ErrorKind::usage, "Generation::{}: expected {}, found {}", option,
                    expected, found);
}

void check_range(const char *option, double found, const keel::SamplingRange &range) {
    if (!range.holds(found))
        throw_error(keel::ErrorKind::usage, "Generation::{}: expected {} to {}, found {}", option,
                    range.low, range.high, found);
}

void check_options(const Generation &g, int64_t least_tokens) {
    check_option(g.max_tokens >= least_tokens, "max_tokens",
                 least_tokens == 0 ? "0 or more" : "1 or more", g.max_tokens);
    check_option(g.logprobs.value_or(0) >= 0, "logprobs", "0 or more", g.logprobs.value_or(0));
    check_range("temperature", g.temperature, keel::sampling_range::temperature);
    check_option(g.top_k >= 0, "top_k", "0 or more", g.top_k);
    check_range("top_p", g.top_p, keel::sampling_range::top_p);
    check_range("min_p", g.min_p, keel::sampling_range::min_p);
    check_range("repetition_penalty", g.repetition_penalty,
                keel::sampling_range::repetition_penalty);
    check_option(g.repetition_window >= 0, "repetition_window", "0 or more", g.repetition_window);
    for (const std::string &stop : g.stop)
        check_option(!stop.empty(), "stop", "texts", "an empty one");
}

} // namespace

keel::Progress progress_of(const Progress &progress) {
    if (!progress) return {};
    return [progress](const char *stage, uint64_t done, uint64_t total) {
        call_back([&] { progress(stage, done, total); });
    };
}

void check_ids(const std::vector<int32_t> &ids, const char *where, const keel::Pipeline &pipeline) {
    const auto vocabulary = pipeline.model().vocab_size;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= vocabulary)
            throw_error(keel::ErrorKind::usage,
                        "{}: ids[{}]: expected a token from 0 to {}, found {}", where, i,
                        vocabulary - 1, ids[i]);
    }
}

GenerateOptions options_of(const Generation &g, int64_t least_tokens) {
    check_options(g, least_tokens);
    GenerateOptions o;
    o.max_tokens = g.max_tokens;
    o.stop = g.stop;
    o.sampling.temperature = static_cast<float>(g.temperature);
    o.sampling.top_k = static_cast<int32_t>(std::min<int64_t>(g.top_k, INT32_MAX));
    o.sampling.top_p = static_cast<float>(g.top_p);
    o.sampling.min_p = static_cast<float>(g.min_p);
    o.sampling.repetition_penalty = static_cast<float>(g.repetition_penalty);
    o.sampling.repetition_window =
        static_cast<int32_t>(std::min<int64_t>(g.repetition_window, INT32_MAX));
    o.sampling.seed = g.seed;
    o.ignore_end = g.ignore_end;
    o.logprobs = g.logprobs;
    if (g.on_text) {
        o.on_text = [on_text = g.on_text](std::string_view text) {
            call_back([&] { on_text(text); });
        };
    }
    o.progress = progress_of(g.on_progress);
    return o;
}

Generation generation_of(const pipeline::PipelineConfig &config) {
    Generation g;
    g.max_tokens = *config.generation.max_tokens;
    g.stop = *config.generation.stop;
    g.temperature = *config.sampling.temperature;
    g.top_k = *config.sampling.top_k;
    g.top_p = *config.sampling.top_p;
    g.min_p = *config.sampling.min_p;
    g.repetition_penalty = *config.sampling.repetition_penalty;
    g.repetition_window = *config.sampling.repetition_window;
    g.seed = static_cast<uint64_t>(*config.sampling.seed);
    return g;
}

Stop stop_of(StopReason reason) {
    switch (reason) {
    case StopReason::end_token: return Stop::end_token;
    case StopReason::stop_string: return Stop::stop_string;
    case StopReason::max_tokens: return Stop::max_tokens;
    case StopReason::cache_full: return Stop::cache_full;
    case StopReason::device_lost: // result_of() reports it by an exception
    case StopReason::cancelled: break;
    }
    return Stop::cancelled;
}

std::vector<Logprobs> logprobs_of(const std::vector<TokenLogprobs> &tokens) {
    std::vector<Logprobs> all;
    all.reserve(tokens.size());
    for (const TokenLogprobs &token : tokens) {
        Logprobs &noted = all.emplace_back();
        noted.chosen = {token.chosen.id, token.chosen.logprob};
        for (const keel::TokenLogprob &other : token.top)
            noted.top.push_back({other.id, other.logprob});
    }
    return all;
}

Result result_of(GenerateResult &&r) {
    if (r.reason == StopReason::device_lost)
        keel::throw_error(keel::ErrorKind::runtime, "{}", r.detail);
    Result out;
    out.text = std::move(r.text);
    out.ids = std::move(r.ids);
    out.stop = stop_of(r.reason);
    out.detail = std::move(r.detail);
    out.logprobs = logprobs_of(r.logprobs);
    return out;
}

} // namespace keel::api
