#include "pipeline/generate.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"
#include "pipeline/pin_text.hpp"
#include "text/stream.hpp"

#include <algorithm>
#include <chrono>

namespace keel {

const char *stop_reason_name(StopReason reason) {
    switch (reason) {
    case StopReason::end_token:
        return "end_token";
    case StopReason::stop_string:
        return "stop_string";
    case StopReason::max_tokens:
        return "max_tokens";
    case StopReason::cache_full:
        return "cache_full";
    case StopReason::device_lost:
        return "device_lost";
    case StopReason::cancelled:
        break;
    }
    return "cancelled";
}

namespace {

std::span<const float> last_row(Session &session) {
    return session.logits().last(static_cast<size_t>(session.pipeline().model().vocab_size));
}

// Before the prompt is taken in: its first token will be number `first`.
void pin_texts(Session &session, std::span<const int32_t> prompt, int64_t first,
               const GenerateOptions &options) {
    const Tokenizer &tokenizer = *session.pipeline().tokenizer();
    for (const std::string &text : options.pin) {
        const TokenRun run = find_text(tokenizer, prompt, text, options.pin_key);
        session.pin(first + run.from, first + run.to, options.pin_key);
    }
}

} // namespace

GenerateOptions generate_options(const pipeline::PipelineConfig &config) {
    GenerateOptions options;
    options.max_tokens = *config.generation.max_tokens;
    options.stop = *config.generation.stop;
    options.pin = *config.generation.pin;
    if (!config.generation.pin.is_default())
        options.pin_key = fmt::format("{}: {}", to_string(config.generation.pin.where), options.pin_key);
    SamplingParams &s = options.sampling;
    s.temperature = static_cast<float>(*config.sampling.temperature);
    s.top_k = static_cast<int32_t>(*config.sampling.top_k);
    s.top_p = static_cast<float>(*config.sampling.top_p);
    s.min_p = static_cast<float>(*config.sampling.min_p);
    s.repetition_penalty = static_cast<float>(*config.sampling.repetition_penalty);
    s.repetition_window = static_cast<int32_t>(*config.sampling.repetition_window);
    s.seed = static_cast<uint64_t>(*config.sampling.seed);
    return options;
}

GenerateResult generate(Session &session, std::span<const int32_t> prompt, const GenerateOptions &options) {
    if (prompt.empty() && !session.pending())
        throw_error(ErrorKind::usage, "the prompt is empty and the model has no token that begins a text");
    const auto start = std::chrono::steady_clock::now();
    Pipeline &pipeline = session.pipeline();
    const Tokenizer &tokenizer = *pipeline.tokenizer();
    Sampler sampler(options.sampling);
    if (options.random) sampler.restore_rng(*options.random);
    TextStream stream(tokenizer, options.stop);
    GenerateResult result;
    const auto emit = [&](const std::string &text) {
        result.text += text;
        if (options.on_text && !text.empty()) options.on_text(text);
    };
    const bool plain_greedy = options.sampling.temperature == 0 && options.sampling.repetition_penalty == 1;
    const auto cancelled = [&] { return pipeline.host().cancelled(); };
    bool stopped = false;
    const auto stop = [&](StopReason reason, std::string detail = {}) {
        result.reason = reason;
        result.detail = std::move(detail);
        stopped = true;
    };

    if (!prompt.empty()) {
        std::vector<int32_t> input(prompt.begin(), prompt.end());
        if (session.pending()) input.insert(input.begin(), *session.pending());
        const int64_t before = session.tokens();
        bool is_read = false;
        try {
            pin_texts(session, prompt, before + std::ssize(input) - std::ssize(prompt), options);
            is_read = session.prefill(input, true, 1, options.progress);
        } catch (...) {
            session.unpin(session.tokens()); // tokens that never came
            throw;
        }
        if (!is_read) {
            session.unpin(session.tokens());
            const int64_t stay = session.tokens() - before;
            stop(StopReason::cancelled,
                 stay == 0
                     ? std::string()
                     : fmt::format("{} of the prompt's {} tokens were read and stay", stay, input.size()));
        }
    } else if (std::string why; session.can_take(1, &why)) {
        session.decode(*session.pending());
    } else {
        stop(StopReason::cache_full, why);
    }
    if (!stopped && cancelled()) stop(StopReason::cancelled);
    const auto next_token = [&] {
        const int32_t id = plain_greedy && !options.logprobs
                               ? session.greedy()
                               : sampler.sample(last_row(session), session.history());
        if (result.ids.empty()) {
            result.first_token_seconds =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        }
        result.ids.push_back(id);
        if (options.logprobs)
            result.logprobs.push_back(token_logprobs(last_row(session), id, *options.logprobs));
        session.set_pending(id);
        const bool ends = tokenizer.ends_generation(id) ||
                          std::binary_search(options.end_ids.begin(), options.end_ids.end(), id);
        if (ends && !options.ignore_end) {
            stop(StopReason::end_token);
            return;
        }
        emit(stream.push(id));
        std::string why;
        if (stream.stopped()) {
            stop(StopReason::stop_string, std::string(stream.stop_string()));
        } else if (cancelled()) {
            stop(StopReason::cancelled);
        } else if (static_cast<int64_t>(result.ids.size()) < options.max_tokens) {
            // The last token needs no step of its own.
            if (session.can_take(1, &why)) {
                session.decode(id);
            } else {
                stop(StopReason::cache_full, why);
            }
        }
    };
    try {
        while (!stopped && static_cast<int64_t>(result.ids.size()) < options.max_tokens)
            next_token();
    } catch (const Error &error) { // what was written is there all the same
        if (!session.is_broken() || result.ids.empty()) throw;
        stop(StopReason::device_lost, error.what());
    }
    emit(stream.finish());
    if (stream.stopped() && result.reason != StopReason::stop_string) {
        result.reason = StopReason::stop_string;
        result.detail = std::string(stream.stop_string());
    }
    result.stats = session.stats();
    result.random = sampler.rng_state();
    return result;
}

std::string closing_line(const GenerateResult &r) {
    const SessionStats &s = r.stats;
    const double tokens = static_cast<double>(std::max<uint64_t>(s.decode_tokens, 1));
    std::string line;
    if (!r.ids.empty()) line = fmt::format("time to first token {:.0f} ms | ", 1000 * r.first_token_seconds);
    line += fmt::format("prefill {}, {:.1f} tokens/s | decode {}, {:.1f} tokens/s | ",
                        counted(s.prefill_tokens, "token"), s.prefill_rate(),
                        counted(s.decode_tokens, "token"), s.decode_rate());
    line += fmt::format("KV {} (peak {})", format_bytes(s.kv_bytes), format_bytes(s.kv_peak_bytes));
    line += " | " + counted(s.evictions, "eviction");
    if (s.evictions > 0)
        line += fmt::format(" of {}, {} freed, {:.1f} ms", counted(s.evicted_tokens, "token"),
                            format_bytes(s.evicted_bytes), 1000 * s.eviction_seconds);
    line += fmt::format(" | {:.1f} submits, {:.1f} waits per token",
                        static_cast<double>(s.decode_stream.submits) / tokens,
                        static_cast<double>(s.decode_stream.waits) / tokens);
    for (const BackendMove &move : s.moves)
        line += "\nswitch: " + move_text(move);
    return line;
}

} // namespace keel
