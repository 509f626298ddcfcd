#include "config_check.hpp"

#include "fit.hpp"
#include "model_tensors.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "pipeline/generate.hpp"

#include <fmt/format.h>

namespace keel::cli {
namespace {

void check_weights(const pipeline::PipelineConfig &config, const ModelSource &source) {
    check_model_tensors(source);
    const keel_dtype weights = *config.model.weights;
    if (weights != KEEL_DTYPE_NONE && !can_be(source, weights)) {
        throw_error(
            ErrorKind::input,
            "{}: {} stores {} values in a block, and rows of this model's weights are no multiple of that",
            to_string(config.model.weights.where), keel_dtype_name(weights), keel_dtype_block(weights));
    }
    const MemoryNeed need = memory_need(source, weights, config.kv.key_type(), config.kv.value_type(), 1);
    require_memory(need.weights, source.path(),
                   "free some, or set model.weights to a smaller type (q8_0, q4_0)", memory_info());
}

int64_t check_context(const pipeline::PipelineConfig &config, const ModelConfig &model) {
    const int64_t context = config.model.context->value_or(model.max_positions);
    if (context > model.max_positions && config.policy.evicts_nothing()) {
        throw_error(
            ErrorKind::input,
            "{}: model.context is {}, the model was made for {}; lower it or choose a policy that evicts",
            to_string(config.model.context.where), context, model.max_positions);
    }
    if (kv_bytes_per_token(model, config.kv.key_type(), config.kv.value_type()) == 0) {
        throw_error(ErrorKind::input,
                    "{}: {} and {} store values in blocks of 32, this model's heads have {}; use f16 or bf16",
                    to_string(config.kv.dtype.where), keel_dtype_name(config.kv.key_type()),
                    keel_dtype_name(config.kv.value_type()), model.head_dim);
    }
    return context;
}

void check_prompt(const pipeline::PipelineConfig &config, const ModelConfig &model, int64_t context) {
    const auto tokenizer = load_tokenizer(*config.model.path);
    if (tokenizer->vocab_size() > model.vocab_size) {
        throw_error(ErrorKind::input, "{}: the tokenizer has ids up to {}, the model's vocabulary ends at {}",
                    config.model.path->string(), tokenizer->vocab_size() - 1, model.vocab_size - 1);
    }
    const auto tokens = static_cast<int64_t>(tokenizer->encode(*config.generation.prompt).size());
    if (config.policy.evicts_nothing() && tokens > context) {
        throw_error(ErrorKind::input,
                    "{}: the prompt has {} tokens, the context {}; shorten it or raise model.context",
                    to_string(config.generation.prompt.where), tokens, context);
    }
}

} // namespace

std::string check_pipeline(const pipeline::PipelineConfig &config) {
    const auto host = std::make_shared<HostServices>();
    const BoundPlugin policy = bind_plugin(config.policy, KEEL_PLUGIN_POLICY);
    if (!config.policy.evicts_nothing()) bind_plugin(config.policy.allocator, KEEL_PLUGIN_ALLOCATOR);
    const auto source = open_model_source(*config.model.path);
    check_weights(config, *source);
    const int64_t context = check_context(config, source->config());
    check_prompt(config, source->config(), context);
    check_sampling_params(generate_options(config).sampling);
    if (*config.fallback != "reference") {
        pipeline::BackendSection fallback;
        fallback.plugin = config.fallback;
        fallback.device.value = "auto";
        open_device(fallback, host);
    }
    const auto device = open_device(config.backend, host);
    return fmt::format(
        "{} with {} parameters, backend {} ({}), {} tokens of {} cache at {} each, policy {}",
        source->config().architecture->name, source->config().parameter_count(), device->plugin(),
        device->info().description, context, keel_dtype_name(config.kv.key_type()),
        format_bytes(kv_bytes_per_token(source->config(), config.kv.key_type(), config.kv.value_type())),
        policy.library->id());
}

} // namespace keel::cli
