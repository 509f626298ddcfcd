#include "server/service/request_fields.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace keel::server {
namespace {

// A field that this server does not have. Values that have no effect are accepted.
struct AbsentField {
    const char *name;
    const char *harmless; // JSON of a further value that is accepted
    const char *remedy;
};

constexpr const char *no_structure = "structured output is not available; ask for the form in the "
                                     "prompt, and check the answer";
constexpr const char *no_tools = "tools are not available; remove the field";
constexpr const char *leave_out = "the field is not available; remove it";

constexpr std::array<AbsentField, 46> absent_fields{{
    {"tools", "[]", no_tools},
    {"tool_choice", "\"none\"", no_tools},
    {"functions", "[]", no_tools},
    {"function_call", "\"none\"", no_tools},
    {"response_format", R"({"type":"text"})", no_structure},
    {"grammar", "\"\"", no_structure},
    {"json_schema", "{}", no_structure},
    {"guided_json", "{}", no_structure},
    {"guided_regex", "\"\"", no_structure},
    {"guided_choice", "[]", no_structure},
    {"guided_grammar", "\"\"", no_structure},
    {"structured_outputs", "{}", no_structure},
    {"structural_tag", "\"\"", no_structure},
    {"logit_bias", "{}", leave_out},
    {"presence_penalty", "0", "the field is not available; use repetition_penalty"},
    {"frequency_penalty", "0", "the field is not available; use repetition_penalty"},
    {"suffix", "\"\"", leave_out},
    {"min_tokens", "0", leave_out},
    {"allowed_token_ids", "[]", leave_out},
    {"bad_words", "[]", leave_out},
    {"truncate_prompt_tokens", "false", "the server never cuts a prompt; send a shorter one"},
    {"include_stop_str_in_output", "false", leave_out},
    {"skip_special_tokens", "true", leave_out},
    {"spaces_between_special_tokens", "true", leave_out},
    {"return_tokens_as_token_ids", "false", leave_out},
    {"return_token_ids", "false", leave_out},
    {"continue_final_message", "false", leave_out},
    {"add_generation_prompt", "true", leave_out},
    {"chat_template", "\"\"", "start the server with --chat-template NAME"},
    {"chat_template_kwargs", "{}", leave_out},
    {"documents", "[]", leave_out},
    {"prompt_logprobs", "false", "use echo and logprobs of /v1/completions"},
    {"prompt_embeds", "[]", leave_out},
    {"priority", "0", leave_out},
    {"cache_salt", "\"\"", leave_out},
    {"use_beam_search", "false", leave_out},
    {"length_penalty", "1", leave_out},
    {"mirostat", "0", leave_out},
    {"typical_p", "1", leave_out},
    {"xtc_probability", "0", leave_out},
    {"dry_multiplier", "0", leave_out},
    {"modalities", R"(["text"])", "this server writes only text"},
    {"audio", "{}", "this server writes only text"},
    {"web_search_options", "{}", leave_out},
    {"lora", "[]", leave_out},
    {"best_of", "1", "the field is not available; use n, and choose one of the answers"},
}};

void refuse_absent_fields(const JsonNode &body) {
    const bool has_tools = body.find("tools") && !body.at("tools").raw().empty();
    for (const AbsentField &field : absent_fields) {
        const auto node = body.find(field.name);
        if (!node) continue;
        const nlohmann::json &value = node->raw();
        if (value == nlohmann::json::parse(field.harmless)) continue;
        const std::string_view name = field.name;
        // without tools, there is nothing to choose
        if ((name == "tool_choice" || name == "function_call") && value == "auto" && !has_tools)
            continue;
        if (name == "best_of" && body.find("n") && value == body.at("n").raw()) continue;
        node->fail(field.remedy);
    }
}

void read_stop(const JsonNode &body, std::vector<std::string> &stops) {
    const auto node = body.find("stop");
    if (!node) return;
    stops.clear();
    const auto add = [&](const JsonNode &text) {
        const std::string &stop = text.text(body_limit::stop_bytes);
        if (stop.empty()) text.expected("a text that is not empty");
        stops.push_back(stop);
    };
    if (node->is_text()) return add(*node);
    if (!node->is_array()) node->expected("a text or a list of texts");
    for (size_t i = 0; i < node->size(body_limit::stops); ++i) add(node->element(i));
}

void read_sampling(const JsonNode &body, api::Generation &g) {
    if (const auto v = body.find("temperature")) g.temperature = v->number(0, 1'000'000);
    if (const auto v = body.find("top_p")) g.top_p = v->number(0, 1);
    if (const auto v = body.find("min_p")) g.min_p = v->number(0, 1);
    // -1 is vLLM's way to sample from all tokens
    if (const auto v = body.find("top_k"))
        g.top_k = std::max<int64_t>(0, v->integer(-1, INT32_MAX));
    if (const auto v = body.find("repetition_penalty"))
        g.repetition_penalty = v->number(0.001, 1000);
    g.ignore_end = body.flag_or("ignore_eos", false);
}

void read_seed(const JsonNode &body, CommonFields &out) {
    const auto node = body.find("seed");
    if (!node) return;
    const bool is_negative = node->raw().is_number_integer() && !node->raw().is_number_unsigned();
    // other servers take -1 as "draw a seed"
    if (is_negative && node->integer(INT64_MIN, -1) == -1) return;
    out.generation.seed = node->natural(0, INT64_MAX);
    out.has_seed = true;
}

void read_stream(const JsonNode &body, CommonFields &out) {
    out.stream = body.flag_or("stream", false);
    const auto options = body.find("stream_options");
    if (!options) return;
    out.include_usage = options->flag_or("include_usage", false);
    if (options->flag_or("continuous_usage_stats", false))
        options->fail("continuous_usage_stats",
                      "the field is not available; use include_usage, which adds the usage once");
    if (!out.stream) options->fail("expected no stream_options, because stream is not true");
}

} // namespace

JsonNode required(const JsonNode &object, std::string_view key) {
    if (const auto node = object.find(key)) return *node;
    object.fail(key, "expected a value, found nothing");
}

JsonDocument read_body(std::string_view body) {
    // The server has already limited the bytes.
    return JsonDocument(body, "body", {SIZE_MAX, body_limit::depth, body_limit::values, false});
}

CommonFields read_common_fields(const JsonNode &body, const api::Generation &defaults) {
    refuse_absent_fields(body);
    CommonFields out;
    out.generation = defaults;
    out.generation.on_text = nullptr;
    out.generation.on_progress = nullptr;
    if (const auto v = body.find("model")) out.model = v->text(512);
    for (const char *name : {"max_tokens", "max_completion_tokens"})
        if (const auto v = body.find(name)) out.max_tokens = v->integer(0, body_limit::max_tokens);
    read_sampling(body, out.generation);
    read_stop(body, out.generation.stop);
    if (const auto v = body.find("stop_token_ids"))
        for (size_t i = 0; i < v->size(body_limit::stops); ++i)
            out.end_ids.push_back(static_cast<int32_t>(v->element(i).integer(0, INT32_MAX)));
    if (const auto v = body.find("n")) out.choices = v->integer(1, body_limit::choices);
    read_seed(body, out);
    read_stream(body, out);
    if (const auto v = body.find("keel")) out.keel = read_keel_fields(*v);
    return out;
}

} // namespace keel::server
