#include "run/pipeline.hpp"

#include "base/display.hpp"
#include "base/log.hpp"
#include "config/config_places.hpp"
#include "config/params.hpp"
#include "ops/explain.hpp"
#include "platform/memory.hpp"
#include "plugin/parallel.hpp"
#include "reference/reference.hpp"
#include "run/memory_need.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace keel {
BoundPlugin bind_plugin(const pipeline::PluginSection &section, keel_plugin_kind kind) {
    BoundPlugin bound;
    bound.library = &PluginRegistry::process().get(*section.plugin, kind, section.plugin.where);
    bound.params =
        bound.library->params().bind(pipeline::given_params(section), section.plugin.where);
    bound.places = places_of(section);
    return bound;
}

std::shared_ptr<Device> open_device(const pipeline::BackendSection &section,
                                    const std::shared_ptr<HostServices> &host) {
    if (is_reference(*section.plugin)) {
        if (!section.params.empty()) {
            throw_error(ErrorKind::input, "{}: the reference backend has no parameters",
                        to_string(section.params.front().key_where));
        }
        if (*section.device != "auto") {
            throw_error(
                ErrorKind::input,
                "{}: expected auto for 'backend.device', found '{}': the reference backend has no "
                "devices to choose from",
                to_string(section.device.where), *section.device);
        }
        return Device::open_reference(host);
    }
    auto bound = std::make_shared<BoundPlugin>(bind_plugin(section, KEEL_PLUGIN_BACKEND));
    DeviceSpec spec;
    spec.plugin = bound->library->id();
    spec.table = bound->library->backend();
    spec.extension = [library = bound->library](const char *id) { return library->extension(id); };
    spec.selector = *section.device;
    spec.params.assign(bound->params.data(), bound->params.data() + bound->params.size());
    spec.host = host;
    spec.keep_alive = bound;
    spec.places = bound->places;
    spec.selector_at = section.device.where;
    return Device::open(std::move(spec));
}

std::shared_ptr<const ModelSource> open_model(const pipeline::ModelSection &section) {
    std::error_code error;
    if (!std::filesystem::exists(*section.path, error)) {
        throw_error(ErrorKind::input,
                    "{}: 'model.path': {}: {}; expected the folder of a model, or a GGUF file",
                    to_string(section.path.where), printable(section.path->string(), 400),
                    error ? error.message() : "no such file or folder");
    }
    return open_model_source(*section.path);
}

Pipeline::Pipeline(const pipeline::PipelineConfig &config, const PipelineOptions &options)
    : config_(config), host_(options.host ? options.host : std::make_shared<HostServices>()),
      memory_(options.memory), monitor_(options.monitor ? options.monitor : system_monitor()),
      open_device_(options.device), open_fallback_(options.fallback),
      has_system_prompt_(options.has_system_prompt), quiet_fallbacks_(options.quiet_fallbacks),
      sequences_(std::max(options.sequences, options.batch)),
      batch_(std::max<uint32_t>(options.batch, 1)) {
    const auto start = std::chrono::steady_clock::now();
    // What is cheap to check comes first: plugins and their parameters, then the model's files,
    // then its weights.
    check_batch();
    policy_ = bind_plugin(config_.policy, KEEL_PLUGIN_POLICY);
    source_ = open_model(config_.model);
    open_engines();
    for (const auto &engine : engines_) {
        make_kv_shape(*engine);
        at_its_line(config_, config_.model.path.where, [&] { engine->kv_shape.check(); });
    }
    check_cap();
    check_tables();
    bind_eviction();
    try {
        tokenizer_ = load_tokenizer(*config_.model.path);
    } catch (const Error &) {
        if (options.need_tokenizer) throw;
    }
    if (tokenizer_ && tokenizer_->vocab_size() > model().vocab_size) {
        throw_error(ErrorKind::input,
                    "{}: the tokenizer has ids up to {}, the model's vocabulary ends at {}",
                    config_.model.path->string(), tokenizer_->vocab_size() - 1,
                    model().vocab_size - 1);
    }
    make_cache_plans(options.has_system_prompt);
    check_trained_context(cache_plan());
    compare_budgets();
    if (fit_context())
        make_cache_plans(options.has_system_prompt); // plans count with what the context became
    if (options.check_only) return;
    load_weights(options);
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const auto &engine : engines_)
        report_fallbacks(engine->device(), engine->ops());
}

Pipeline::~Pipeline() = default;

// A cache that evicts may see more tokens than the model was trained on; one that keeps all may
// not.
void Pipeline::check_trained_context(const CachePlan &plan) const {
    if (context() <= model().max_positions || !plan.keeps_all()) return;
    throw_error(ErrorKind::input,
                "{}: model.context is {}, the model was made for {}; lower it or choose a policy "
                "that evicts",
                to_string(config_.model.context.where), context(), model().max_positions);
}

// A policy that brings a number of its own goes with a budget: both hold, and what an eviction
// leaves is the smaller. Where the two differ, one of them does not mean what whoever wrote it may
// think.
void Pipeline::compare_budgets() const {
    const keel_policy_needs &needs = cache_plan().needs();
    const pipeline::PolicySection &p = config_.policy;
    const auto kind = p.budget.kind();
    if (cache_plan().keeps_all() || needs.own_budget == 0 || kind == pipeline::BudgetKind::none ||
        kind == pipeline::BudgetKind::ratio)
        return;
    const int64_t own = int64_t{needs.own_budget} + *p.protect.prefix,
                  budget = cache_plan().budget().at(0).tokens;
    if (own == budget) return;
    const std::string key =
        kind == pipeline::BudgetKind::tokens ? "policy.budget.tokens" : "policy.budget.mib";
    const SourceLocation where = p.budget.where();
    log().warn("{}{} leaves {} slots a head, policy {} itself asks for {} beside a protected "
               "prefix of {}; both "
               "hold, so an eviction leaves {}",
               where.line > 0 ? to_string(where) + ": " : "", key, budget, policy_.library->id(),
               needs.own_budget, *p.protect.prefix, std::min(own, budget));
}

std::vector<const PlannedOp *> Pipeline::ops() const {
    std::vector<const PlannedOp *> all;
    for (const auto &engine : engines_) {
        const auto ops = engine->ops();
        all.insert(all.end(), ops.begin(), ops.end());
    }
    return all;
}

// A fallback is never silent.
void Pipeline::report_fallbacks(const Device &device,
                                const std::vector<const PlannedOp *> &ops) const {
    if (quiet_fallbacks_) return;
    for (const ExplainRow &row : explain_rows(ops)) {
        if (row.rung == "native") continue;
        log().warn("backend {} does not run {} itself ({}); {} of them run {}: {}. `strict: true` "
                   "makes this "
                   "an error",
                   device.plugin(), row.op, row.reason, row.count, row.rung, row.kernel);
    }
}

Engine *Pipeline::find_engine(std::string_view name) const {
    for (const auto &engine : engines_) {
        if (engine->name == name) return engine.get();
    }
    return nullptr;
}

bool Pipeline::is_own(const CachePlan &plan) const {
    return std::any_of(engines_.begin(), engines_.end(),
                       [&](const auto &engine) { return engine->cache_plan.get() == &plan; });
}

Stream::Counters Pipeline::counters() const {
    Stream::Counters sum;
    for (const auto &device : devices_)
        sum += device->stream().counters();
    return sum;
}

void Pipeline::set_trace(Trace *trace) {
    for (const auto &engine : engines_)
        engine->executor->set_trace(trace);
}

void Pipeline::set_observer(const Observer &observer) {
    for (const auto &engine : engines_) {
        Executor &executor = *engine->executor;
        if (!observer)
            executor.set_observer({});
        else
            executor.set_observer(
                [observer, &executor](const PlannedOp &op, const keel_op_args *args, bool after) {
                    observer(executor, op, args, after);
                });
    }
}

std::string Pipeline::backends_text() const {
    if (!config_.hybrid.is_given()) return engine().device().plugin();
    std::string text;
    for (const pipeline::HybridBackend &backend : *config_.hybrid.backends)
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", backend.name, *backend.plugin);
    return text;
}

uint32_t Pipeline::step_tokens() const {
    uint32_t least = UINT32_MAX;
    for (const auto &engine : engines_)
        least = std::min(least, engine->graph->max_tokens());
    return least;
}

uint64_t Pipeline::weight_bytes_per_token() const {
    if (mode() == pipeline::HybridMode::taking_turns)
        return engine().weights->bytes_per_token(engine().device());
    uint64_t bytes = 0;
    for (const auto &engine : engines_)
        bytes += engine->weights->bytes_per_token(engine->device());
    return bytes;
}

uint64_t Pipeline::weight_bytes() const {
    uint64_t bytes = 0;
    for (const auto &engine : engines_)
        bytes += engine->weights->bytes(engine->device());
    return bytes;
}

uint64_t Pipeline::kv_bytes_per_token() const {
    if (mode() != pipeline::HybridMode::by_layers) return kv_shape().bytes_per_token();
    uint64_t bytes = 0;
    for (const auto &engine : engines_)
        bytes += engine->kv_shape.bytes_per_token();
    return bytes;
}

} // namespace keel
