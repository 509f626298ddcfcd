#include "run_report.hpp"

#include "program.hpp"

#include "base/display.hpp"
#include "eval/page/text_table.hpp"
#include "ops/explain.hpp"
#include "run/explain.hpp"
#include "text/utf8.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

Json rows_json(std::span<const PlannedOp *const> ops) {
    Json rows = Json::array();
    for (const ExplainRow &row : explain_rows(ops)) {
        rows.push_back({{"op", row.op},
                        {"rung", row.rung},
                        {"kernel", row.kernel},
                        {"reason", row.reason},
                        {"count", row.count},
                        {"scratch_bytes", row.scratch_bytes},
                        {"crossing_bytes", row.crossing_bytes}});
    }
    return rows;
}

Json token_json(const Tokenizer &tokenizer, const TokenLogprob &token) {
    const std::string_view piece = tokenizer.piece(token.id);
    Json json = {
        {"id", token.id}, {"token", replace_invalid_utf8(piece)}, {"logprob", token.logprob}};
    // the token is only a part of a character, so its text is U+FFFD, which does not show the
    // token's bytes
    if (json["token"] != piece) {
        json["bytes"] = Json::array();
        for (const char byte : piece) json["bytes"].push_back(static_cast<unsigned char>(byte));
    }
    return json;
}

// Conversions as text, for example "12 Q4_K tensors are converted to q8_0: ...".
Json converted(const std::vector<Conversion> &conversions) {
    Json lines = Json::array();
    for (const Conversion &conversion : conversions) lines.push_back(conversion_text(conversion));
    return lines;
}

} // namespace

std::string quoted(std::string_view piece) {
    std::string out;
    for (const char c : piece) {
        if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '"' || c == '\\') {
            (out += '\\') += c;
        } else {
            out += c;
        }
    }
    return '"' + printable(out, 4096) + '"';
}

namespace {

// The number of layers on which the policy acts, and of layers with a window. null if no layer has
// a window.
Json layers_json(const LayerSplit &split) {
    if (split.window() == 0) return nullptr;
    return {{"all", split.model_layers()},
            {"policy", split.of_model()},
            {"windowed", split.model_windowed()},
            {"window", split.window()}};
}

// The work of each backend. null if there is only one backend.
Json hybrid_json(Pipeline &p) {
    if (!p.config().hybrid.is_given()) return nullptr;
    Json backends = Json::array();
    for (const auto &engine : p.engines()) {
        backends.push_back(
            {{"name", engine->name},
             {"backend", engine->device().plugin()},
             {"device", engine->device().device_info().name},
             {"first_layer", engine->part.first},
             {"last_layer", engine->part.end - 1},
             {"weight_bytes_per_token", engine->weights->bytes_per_token(engine->device())},
             {"kv_bytes_per_token", engine->bytes_per_token()},
             {"kv_window_bytes", engine->held_window_bytes()},
             {"decode", rows_json(engine->graph->ops(StepForm::decode))},
             {"prefill", rows_json(engine->graph->ops(StepForm::prefill))}});
    }
    Json json = {{"crossing_bytes_per_token", crossing_bytes_per_token(p)},
                 {"backends", std::move(backends)}};
    if (p.mode() == pipeline::HybridMode::taking_turns) {
        json["prefill"] = p.engines().prefill().name;
        json["decode"] = p.engine().name;
    }
    return json;
}

} // namespace

namespace {

Json policy_json(const PolicySetup &setup) {
    const CacheConfig &config = setup.config();
    Json json = {{"plugin", config.policy.name}};
    if (setup.keeps_all()) return json;
    json["allocator"] = config.allocator.name;
    json["protect"] = {{"prefix", config.protect_prefix}, {"recent", config.protect_recent}};
    return json;
}

} // namespace

Json explain_json(Pipeline &p) {
    return {{"hybrid", hybrid_json(p)},
            {"backend", p.device().plugin()},
            {"device", p.device().device_info().name},
            {"description", p.device().info().description},
            {"sync", to_string(p.executor().stream().strategy())},
            {"weights", p.weights().dtype_name()},
            {"weight_bytes_per_token", p.weights().bytes_per_token(p.device())},
            {"weights_converted", converted(p.source().conversions(
                                      *p.config().model.weights, p.device().info().weight_dtypes))},
            {"kv",
             {{"key_dtype", keel_dtype_name(p.kv_shape().key_dtype)},
              {"value_dtype", keel_dtype_name(p.kv_shape().value_dtype)},
              {"bytes_per_token", p.engines().kv_bytes_per_token()},
              {"window_bytes", p.engines().held_window_bytes()},
              {"layers", layers_json(p.engine().split)}}},
            {"policy", policy_json(p.policy_setup())},
            {"decode", rows_json(p.graph().ops(StepForm::decode))},
            {"prefill", rows_json(p.graph().ops(StepForm::prefill))},
            {"eviction", rows_json(p.policy_setup().ops())}};
}

namespace {

Json moves_json(const std::vector<BackendMove> &moves) {
    Json list = Json::array();
    for (const BackendMove &m : moves) {
        Json json = {{"why", move_reason_name(m.why)},
                     {"from", m.from},
                     {"to", m.to},
                     {"tokens", m.tokens},
                     {"bytes", m.bytes},
                     {"milliseconds", m.milliseconds}};
        if (m.warmup_tokens > 0) json["warmup_tokens"] = m.warmup_tokens;
        if (m.why == BackendMove::Why::lost) json["reread_tokens"] = m.reread_tokens;
        if (!m.refused.empty()) json["refused"] = m.refused;
        list.push_back(std::move(json));
    }
    return list;
}

} // namespace

Json result_json(Pipeline &p, const std::string &prompt, const GenerateResult &r) {
    const SessionStats &s = r.stats;
    const double steps = static_cast<double>(std::max<uint64_t>(s.decode_tokens, 1));
    Json stop = {{"reason", stop_reason_name(r.reason)}};
    if (!r.detail.empty()) stop["detail"] = r.detail;
    Json json = {{"model", p.source().path()},
                 {"prompt", prompt},
                 {"text", r.text},
                 {"ids", r.ids},
                 {"stop", std::move(stop)}};
    if (!r.logprobs.empty()) json["logprobs"] = logprobs_json(*p.tokenizer(), r);
    json["stats"] = {{"load_seconds", p.load_seconds()},
                     {"first_token_seconds", r.first_token_seconds},
                     {"prefill_tokens", s.prefill_tokens},
                     {"prefill_seconds", s.prefill_seconds},
                     {"prefill_tokens_per_second", s.prefill_rate()},
                     {"decode_tokens", s.decode_tokens},
                     {"decode_seconds", s.decode_seconds},
                     {"decode_tokens_per_second", s.decode_rate()},
                     {"kv_bytes", s.kv_bytes},
                     {"kv_peak_bytes", s.kv_peak_bytes},
                     {"held_bytes", s.held_bytes()},
                     {"held_peak_bytes", s.held_peak_bytes},
                     {"freed_bytes", s.freed_bytes},
                     {"evictions", s.evictions},
                     {"evicted_bytes", s.evicted_bytes},
                     {"eviction_seconds", s.eviction_seconds},
                     {"policy_bytes", s.policy_bytes},
                     {"policy_peak_bytes", s.policy_peak_bytes},
                     {"submits_per_token", static_cast<double>(s.decode_stream.submits) / steps},
                     {"waits_per_token", static_cast<double>(s.decode_stream.waits) / steps},
                     {"replayed_decode_steps", s.decode_stream.replays},
                     {"ahead_decode_steps", s.ahead_steps},
                     {"vain_decode_steps", s.discarded_steps},
                     {"guessed_tokens", s.guessed_tokens},
                     {"right_guesses", s.right_guesses}};
    if (p.config().hybrid.is_given()) json["stats"]["switches"] = moves_json(s.moves);
    return json;
}

Json logprobs_json(const Tokenizer &tokenizer, const GenerateResult &result) {
    Json list = Json::array();
    for (const TokenLogprobs &token : result.logprobs) {
        Json json = token_json(tokenizer, token.chosen);
        json["top"] = Json::array();
        for (const TokenLogprob &other : token.top)
            json["top"].push_back(token_json(tokenizer, other));
        list.push_back(std::move(json));
    }
    return list;
}

std::string logprobs_text(const Tokenizer &tokenizer, const GenerateResult &result) {
    std::vector<std::vector<std::string>> rows{{"logprob", "token", "most likely"}};
    for (const TokenLogprobs &token : result.logprobs) {
        std::string top;
        for (const TokenLogprob &other : token.top)
            top += fmt::format("{}{} {:.4f}", top.empty() ? "" : "  ",
                               quoted(tokenizer.piece(other.id)), other.logprob);
        rows.push_back({fmt::format("{:.4f}", token.chosen.logprob),
                        quoted(tokenizer.piece(token.chosen.id)), std::move(top)});
    }
    return left_table(rows);
}

} // namespace keel::cli
