#include "run/pipeline.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/config_places.hpp"
#include "plugin/parallel.hpp"
#include "run/explain.hpp"
#include "run/memory_plan.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

namespace keel {

std::shared_ptr<const ModelSource> open_model(const pipeline::ModelSection &section) {
    std::error_code error;
    if (!std::filesystem::exists(*section.path, error)) {
        throw_at(section.path.where, ErrorKind::input,
                 "'model.path': {}: {}; expected the folder of a model, or a GGUF file",
                 printable(section.path->string(), 400),
                 error ? error.message() : "no such file or folder");
    }
    return open_model_source(*section.path);
}

Pipeline::Pipeline(const pipeline::PipelineConfig &config, const PipelineOptions &options)
    : config_(config), host_(options.host ? options.host : std::make_shared<HostServices>()),
      monitor_(options.monitor ? options.monitor : system_monitor()),
      batch_(std::max<uint32_t>(options.batch, 1)) {
    const auto start = std::chrono::steady_clock::now();
    // Cheap checks come first: plugins and their parameters, then the model's files, then its
    // weights.
    check_batch();
    BoundPlugin policy = bind_plugin(config_.policy, KEEL_PLUGIN_POLICY);
    source_ = open_model(config_.model);
    engines_ = open_engines(config_, model(), host_, {options.device, options.fallback},
                            std::max(options.sequences, options.batch), options.prefill_chunk);
    for (const auto &engine : engines_)
        at_its_line(config_, config_.model.path.where, [&] { engine->kv_shape.check(); });
    const MemoryPlan memory(config_, *source_, engines_, batch_, options.memory,
                            options.cache_bytes);
    memory.check_cap();
    memory.check_tables();
    const PolicyContext context{model(), host_, monitor_, options.has_system_prompt,
                                options.several_policies};
    policies_ = std::make_unique<PolicySet>(config_, std::move(policy), context, engines_,
                                            options.quiet_fallbacks);
    read_tokenizer(options.need_tokenizer);
    policies_->make_own_plans();
    policies_->check_own();
    check_lookup();
    if (memory.fit_context()) policies_->make_own_plans(); // the plans depend on the context
    if (options.check_only) return;
    for (const auto &engine : engines_) {
        LoadOptions load = memory.load_options(*engine);
        load.parallel = parallel_on(*host_);
        if (options.progress) {
            load.progress = [&options](uint64_t done, uint64_t total) {
                options.progress("loading", done, total);
            };
        }
        // a step with guesses needs logits for each of its tokens
        const auto rows = static_cast<uint32_t>(*config_.generation.lookup + 1);
        engine->load(source_, load, std::max(options.max_logit_rows, rows), batch_);
    }
    const auto end = std::chrono::steady_clock::now();
    load_seconds_ = std::chrono::duration<double>(end - start).count();
    if (options.quiet_fallbacks) return;
    for (const auto &engine : engines_) warn_of_fallbacks(engine->device(), engine->ops());
}

Pipeline::~Pipeline() = default;

// Refuses features that do not work for several sequences at the same time. Called before anything
// is opened.
void Pipeline::check_batch() const {
    if (batch_ > most_batch) {
        throw_error(ErrorKind::usage, "{} sequences at once are too many, expected at most {}",
                    batch_, most_batch);
    }
    if (batch_ == 1) return;
    refuse_hybrid(config_, "several sequences at once");
    if (*config_.kv.max_mib) {
        throw_at(config_.kv.max_mib.where, ErrorKind::input,
                 "'kv.max_mib' limits the cache of one sequence, but {} sequences run at once; "
                 "remove the key, or limit each sequence by policy.budget",
                 batch_);
    }
}

// Refuses guesses that could not be taken back.
void Pipeline::check_lookup() const {
    const auto &lookup = config_.generation.lookup;
    if (*lookup == 0) return;
    const auto refuse = [&](const std::string &why) {
        throw_at(lookup.where, ErrorKind::input,
                 "'generation.lookup' is {}, but {}; remove the key, or set it to 0", *lookup, why);
    };
    if (config_.hybrid.is_given()) refuse("this key needs a pipeline with one backend");
    if (batch_ > 1) refuse("this key needs a run with one text at a time");
    if (!policy_setup().keeps_all())
        refuse(fmt::format("this key needs a policy that keeps all tokens, and the policy is '{}'",
                           *config_.policy.plugin));
}

void Pipeline::read_tokenizer(bool is_needed) {
    try {
        tokenizer_ = load_tokenizer(*config_.model.path);
    } catch (const Error &) {
        if (is_needed) throw;
    }
    if (tokenizer_ && tokenizer_->vocab_size() > model().vocab_size) {
        throw_error(ErrorKind::input,
                    "{}: the tokenizer has ids up to {}, but the model's vocabulary ends at {}",
                    config_.model.path->string(), tokenizer_->vocab_size() - 1,
                    model().vocab_size - 1);
    }
}

std::string Pipeline::backends_text() const {
    if (!config_.hybrid.is_given()) return engine().device().plugin();
    std::string text;
    for (const pipeline::HybridBackend &backend : *config_.hybrid.backends)
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", backend.name, *backend.plugin);
    return text;
}

} // namespace keel
