#include "config_check.hpp"

#include "model/facts.hpp"
#include "model/model_tensors.hpp"
#include "run/fit.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "run/generate.hpp"
#include "run/pin_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace keel::cli {
namespace {

void check_weights(const pipeline::PipelineConfig &config, const Pipeline &pipeline) {
    const ModelSource &source = pipeline.source();
    check_model_tensors(source);
    const keel_dtype weights = *config.model.weights;
    if (weights != KEEL_DTYPE_NONE && !can_be(source, weights)) {
        throw_error(
            ErrorKind::input,
            "{}: {} stores {} values in a block, but the rows of this model's weights are not a "
            "multiple of this; choose another model.weights",
            to_string(config.model.weights.where), keel_dtype_name(weights),
            keel_dtype_block(weights));
    }
    for (const auto &engine : pipeline.engines()) {
        LoadOptions load;
        load.part = engine->part;
        load.dtype = weights;
        load.weight_dtypes = engine->device().info().weight_dtypes;
        require_memory(weight_bytes(source, load).loaded, source.path(),
                       "free some memory, or set model.weights to a smaller type (q8_0, q4_0)",
                       engine->memory());
    }
}

void check_prompt(const pipeline::PipelineConfig &config, Pipeline &pipeline) {
    if (config.generation.prompt->empty() || !pipeline.policy_setup().keeps_all()) return;
    const auto tokens =
        static_cast<int64_t>(pipeline.tokenizer()->encode(*config.generation.prompt).size());
    if (tokens > pipeline.context()) {
        throw_error(ErrorKind::input,
                    "{}: the prompt has {} tokens, but the context has {}; shorten the prompt, or "
                    "raise model.context",
                    to_string(config.generation.prompt.where), tokens, pipeline.context());
    }
}

void check_pins(const pipeline::PipelineConfig &config, Pipeline &pipeline) {
    if (config.generation.pin->empty() || config.generation.prompt->empty()) return;
    const auto prompt = pipeline.tokenizer()->encode(*config.generation.prompt);
    for (const std::string &text : *config.generation.pin)
        find_text(*pipeline.tokenizer(), prompt, text, generate_options(config).pin_key);
}

std::string types_text(const KvShape &kv) {
    return kv.key_dtype == kv.value_dtype ? keel_dtype_name(kv.key_dtype)
                                          : fmt::format("{}/{}", keel_dtype_name(kv.key_dtype),
                                                        keel_dtype_name(kv.value_dtype));
}

// Describes the cache, for example "f16 cache of up to 512 tokens at 12 KiB each". If the backends
// of a hybrid have different types, lists all of them with the names of the backends.
std::string cache_text(const Pipeline &pipeline) {
    const auto &engines = pipeline.engines();
    const auto same = [&](const auto &engine) {
        return types_text(engine->kv_shape) == types_text(engines.front()->kv_shape);
    };
    std::string types = types_text(pipeline.kv_shape()),
                bytes = format_bytes(pipeline.engines().kv_bytes_per_token());
    if (!std::all_of(engines.begin(), engines.end(), same)) {
        std::vector<std::string> of_each, bytes_of_each;
        // A backend with several ranges of layers is listed only once.
        for (const auto &engine : engines) {
            const std::string text =
                fmt::format("{} on {}", types_text(engine->kv_shape), engine->name);
            if (std::find(of_each.begin(), of_each.end(), text) != of_each.end()) continue;
            of_each.push_back(text);
            bytes_of_each.push_back(format_bytes(engine->kv_shape.bytes_per_token()));
        }
        types = fmt::format("{}", fmt::join(of_each, ", "));
        if (pipeline.mode() == pipeline::HybridMode::taking_turns)
            bytes = fmt::format("{}", fmt::join(bytes_of_each, ", "));
    }
    std::string text =
        fmt::format("{} cache of up to {} tokens at {} each", types, pipeline.context(), bytes);
    if (const uint64_t windows = engines.held_window_bytes(); windows > 0)
        text += fmt::format(" and {} for windows ({})", format_bytes(windows),
                            engines.front()->split.text());
    return text;
}

} // namespace

std::string check_pipeline(const pipeline::PipelineConfig &config) {
    PipelineOptions options;
    options.check_only = true;
    Pipeline pipeline(config, options);
    check_weights(config, pipeline);
    check_prompt(config, pipeline);
    check_pins(config, pipeline);
    check_sampling_params(generate_options(config).sampling);
    const ModelConfig &model = pipeline.model();
    std::vector<std::string> facts = architecture_facts(model);
    if (const std::string window = window_text(model); !window.empty())
        facts.insert(facts.begin(), window);
    const std::string particular =
        facts.empty() ? "" : fmt::format(" ({})", fmt::join(facts, ", "));
    const std::string active =
        model.experts.count == 0
            ? ""
            : fmt::format(" ({} active for a token)", model.active_parameter_count());
    return fmt::format("{}{} with {} parameters{}, backend {} ({}), {}, policy {}",
                       model.architecture->name, particular, model.parameter_count(), active,
                       pipeline.backends_text(), pipeline.device().info().description,
                       cache_text(pipeline), pipeline.policies().own().policy.library->id());
}

} // namespace keel::cli
