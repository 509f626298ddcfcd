#include "pipeline/pipeline.hpp"

#include "base/display.hpp"
#include "base/log.hpp"
#include "device/explain.hpp"
#include "model/parallel.hpp"
#include "pipeline/config_places.hpp"
#include "pipeline/memory_need.hpp"
#include "pipeline/params.hpp"
#include "platform/memory.hpp"
#include "reference/reference.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

namespace keel {
namespace {

SyncStrategy sync_of(const pipeline::SyncSection &section) {
    switch (*section.strategy) {
    case pipeline::SyncStrategy::lazy:
        return {SyncStrategy::Kind::lazy, 0};
    case pipeline::SyncStrategy::eager:
        return {SyncStrategy::Kind::eager, 0};
    case pipeline::SyncStrategy::batched:
        return {SyncStrategy::Kind::batched, static_cast<uint32_t>(section.ops_per_submit())};
    case pipeline::SyncStrategy::automatic:
        break;
    }
    return {};
}

} // namespace

BoundPlugin bind_plugin(const pipeline::PluginSection &section, keel_plugin_kind kind) {
    BoundPlugin bound;
    bound.library = &PluginRegistry::process().get(*section.plugin, kind, section.plugin.where);
    bound.params = bound.library->params().bind(pipeline::given_params(section), section.plugin.where);
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
            throw_error(ErrorKind::input,
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
      memory_(options.memory), monitor_(options.monitor), has_system_prompt_(options.has_system_prompt),
      quiet_fallbacks_(options.quiet_fallbacks), sequences_(options.sequences) {
    const auto start = std::chrono::steady_clock::now();
    // What is cheap to check comes first: plugins and their parameters, then the model's files, then its weights.
    policy_ = bind_plugin(config_.policy, KEEL_PLUGIN_POLICY);
    source_ = open_model(config_.model);
    Executor::Options executor_options;
    executor_options.strict = *config_.strict;
    executor_options.sync = sync_of(config_.sync);
    std::shared_ptr<Device> device = open_device(config_.backend, host_);
    if (!is_reference(*config_.fallback)) {
        pipeline::BackendSection fallback;
        fallback.plugin = config_.fallback;
        fallback.device.value = "auto";
        executor_options.fallback = open_device(fallback, host_);
    }
    executor_ = std::make_unique<Executor>(std::move(device), std::move(executor_options));
    kv_shape_ = make_kv_shape();
    at_its_line(config_, config_.model.path.where, [&] { kv_shape_.check(); });
    check_cap();
    check_tables();
    bind_eviction();
    try {
        tokenizer_ = load_tokenizer(*config_.model.path);
    } catch (const Error &) {
        if (options.need_tokenizer) throw;
    }
    if (tokenizer_ && tokenizer_->vocab_size() > model().vocab_size) {
        throw_error(ErrorKind::input, "{}: the tokenizer has ids up to {}, the model's vocabulary ends at {}",
                    config_.model.path->string(), tokenizer_->vocab_size() - 1, model().vocab_size - 1);
    }
    cache_plan_ = make_cache_plan(options.has_system_prompt);
    check_trained_context(*cache_plan_);
    compare_budgets();
    if (fit_context()) { // the plan counts with what the context became
        cache_plan_.reset();
        cache_plan_ = make_cache_plan(options.has_system_prompt);
    }
    if (options.check_only) return;
    load_weights(options);
    load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_fallbacks(ops());
}

Pipeline::~Pipeline() = default;

KvShape Pipeline::make_kv_shape() const {
    const ModelConfig &m = model();
    const int64_t context = config_.model.context->value_or(m.max_positions);
    KvShape shape;
    shape.layers = static_cast<uint32_t>(m.layers);
    shape.heads = static_cast<uint32_t>(m.heads);
    shape.kv_heads = static_cast<uint32_t>(m.kv_heads);
    shape.head_dim = static_cast<uint32_t>(m.head_dim);
    shape.key_dtype = config_.kv.key_type();
    shape.value_dtype = config_.kv.value_type();
    shape.block_slots = executor_->device().info().kv_block_slots;
    shape.max_slots = context;
    shape.max_bytes = config_.kv.max_bytes().value_or(0);
    shape.sequences = sequences_;
    return shape;
}

// A cache that evicts may see more tokens than the model was trained on; one that keeps all may not.
void Pipeline::check_trained_context(const CachePlan &plan) const {
    if (context() <= model().max_positions || !plan.keeps_all()) return;
    throw_error(ErrorKind::input,
                "{}: model.context is {}, the model was made for {}; lower it or choose a policy that evicts",
                to_string(config_.model.context.where), context(), model().max_positions);
}

// Below it not one token would fit.
void Pipeline::check_cap() const {
    const uint64_t least = uint64_t{kv_shape_.layers} * kv_shape_.kv_heads * kv_shape_.block_bytes();
    if (kv_shape_.max_bytes >= least || !*config_.kv.max_mib) return;
    constexpr double mib = 1048576;
    throw_error(
        ErrorKind::input,
        "{}: expected 'kv.max_mib' to hold a block of {} slots for each head in each layer, which takes "
        "{:.3f} MiB with keys in {} and values in {}; found {}",
        to_string(config_.kv.max_mib.where), kv_shape_.block_slots,
        std::ceil(1000 * static_cast<double>(least) / mib) / 1000, keel_dtype_name(kv_shape_.key_dtype),
        keel_dtype_name(kv_shape_.value_dtype), **config_.kv.max_mib);
}

// A policy that brings a number of its own goes with a budget: both hold, and what an eviction leaves is the smaller. Where the two
// differ, one of them does not mean what whoever wrote it may think.
void Pipeline::compare_budgets() const {
    const keel_policy_needs &needs = cache_plan_->needs();
    const pipeline::PolicySection &p = config_.policy;
    const auto kind = p.budget.kind();
    if (cache_plan_->keeps_all() || needs.own_budget == 0 || kind == pipeline::BudgetKind::none ||
        kind == pipeline::BudgetKind::ratio)
        return;
    const int64_t own = int64_t{needs.own_budget} + *p.protect.prefix, budget = cache_plan_->budget(0).tokens;
    if (own == budget) return;
    const std::string key =
        kind == pipeline::BudgetKind::tokens ? "policy.budget.tokens" : "policy.budget.mib";
    const SourceLocation where = p.budget.where();
    log().warn(
        "{}{} leaves {} slots a head, policy {} itself asks for {} beside a protected prefix of {}; both "
        "hold, so an eviction leaves {}",
        where.line > 0 ? to_string(where) + ": " : "", key, budget, policy_.library->id(), needs.own_budget,
        *p.protect.prefix, std::min(own, budget));
}

// Of the memory that weights and cache lie in: a device's own, or the system's.
MemoryInfo Pipeline::memory() const {
    if (memory_) return memory_();
    Device &device = executor_->device();
    const keel_device_info &info = device.device_info();
    if (info.type == KEEL_DEVICE_CPU || (info.flags & KEEL_DEVICE_UNIFIED) != 0) return memory_info();
    const keel_mem_info own = device.mem_info();
    return {own.total, own.free, fmt::format("device '{}'", info.name)};
}

// What grows with the context before a single token is there.
uint64_t Pipeline::table_bytes(int64_t context) const {
    KvShape shape = kv_shape_;
    shape.max_slots = context;
    return shape.book_bytes() +
           RopeTables::bytes(context, model().head_dim) * (model().local_rope_theta ? 2 : 1);
}

// A model folder may claim any context, so this is asked before anything is allocated; one whose tables alone do
// not fit is absurd, and refused rather than lowered. Devices with memory of their own hold a part of
// the tables; what is not there on the host would be too much for them as well.
void Pipeline::check_tables() const {
    const MemoryInfo info = memory_ ? memory_() : memory_info();
    at_its_line(config_, config_.model.path.where, [&] {
        require_memory(table_bytes(kv_shape_.max_slots),
                       fmt::format("model.context: RoPE and cache tables for {} tokens", kv_shape_.max_slots),
                       "lower model.context", info);
    });
}

// Weights, cache and workspace beside each other. A context that nobody asked for becomes what there is room for; one that somebody
// asked for is kept or refused, before the first weight is read. True if the context is another one now.
bool Pipeline::fit_context() {
    const MemoryInfo info = memory();
    if (info.total == 0) return false;
    const ModelConfig &m = model();
    const int64_t chunk = executor_->device().info().prefill_chunk;
    const int64_t peak = cache_plan_->peak_slots(chunk);
    const MemoryNeed fixed = memory_need(*source_, *config_.model.weights, kv_shape_.key_dtype,
                                         kv_shape_.value_dtype, kv_shape_.max_slots, chunk);
    if (fixed.weights > info.available) return false; // refused where they are loaded, with the cure for that
    const auto need = [&](int64_t context) {
        MemoryNeed n = memory_need(*source_, *config_.model.weights, kv_shape_.key_dtype,
                                   kv_shape_.value_dtype, context, chunk);
        const int64_t slots = std::min(context, peak), block = kv_shape_.block_slots;
        n.cache = static_cast<uint64_t>((slots + block - 1) / block) * kv_shape_.block_bytes() *
                  kv_shape_.layers * kv_shape_.kv_heads;
        n.work += table_bytes(context);
        return n;
    };
    const auto longest = [&](uint64_t bytes) {
        return longest_context(kv_shape_.max_slots, bytes,
                               [&](int64_t context) { return need(context).total(); });
    };
    const bool chosen = config_.model.context->has_value();
    const int64_t wanted = kv_shape_.max_slots, fits = longest(chosen ? info.available : usable_bytes(info));
    if (!chosen && fits > 0) {
        kv_shape_.max_slots = fits;
        if (fits < m.max_positions) {
            log().info("the context is limited to {} tokens, which the free memory holds; the model was made "
                       "for {} (model.context sets it)",
                       fits, m.max_positions);
        }
        return fits != wanted;
    }
    if (fits == wanted) return false;
    const MemoryNeed n = need(chosen ? wanted : std::min<int64_t>(wanted, 256));
    const std::string cure =
        fits > 0 ? fmt::format("lower model.context to {}, or set kv.max_mib or a smaller kv.dtype", fits)
                 : "free some, or set model.weights to a smaller type (q8_0, q4_0)";
    const SourceLocation &where = chosen ? config_.model.context.where : config_.model.path.where;
    throw_error(ErrorKind::resource,
                "{}model.context: {} tokens need {} of memory (weights {}, KV cache {}, workspace {}), {} is "
                "available ({}); {}",
                PluginPlaces::prefix(where), chosen ? wanted : std::min<int64_t>(wanted, 256),
                format_bytes(n.total()), format_bytes(n.weights), format_bytes(n.cache), format_bytes(n.work),
                format_bytes(info.available), info.limited_by, cure);
}

uint32_t Pipeline::prefill_chunk() const {
    return static_cast<uint32_t>(
        std::min<int64_t>(executor_->device().info().prefill_chunk, kv_shape_.max_slots));
}

void Pipeline::load_weights(const PipelineOptions &options) {
    const uint32_t chunk = prefill_chunk();
    LoadOptions load;
    load.dtype = *config_.model.weights;
    load.max_m = chunk;
    load.parallel = parallel_on(*host_);
    if (options.progress) {
        load.progress = [&](uint64_t done, uint64_t total) { options.progress("loading", done, total); };
    }
    weights_ = std::make_unique<ModelWeights>(*executor_, source_, load);
    kv_template_ = std::make_unique<KvTemplate>(kv_shape_);
    GraphOptions graph;
    graph.max_tokens = chunk;
    graph.max_logit_rows = std::min(options.max_logit_rows, chunk);
    graph.kv = kv_template_->view();
    graph.taps = cache_plan_->tap_forms();
    graph.rope_rows = std::max<int64_t>(kv_shape_.max_slots, chunk);
    graph_ = std::make_unique<Graph>(*executor_, *weights_, graph);
}

std::vector<const PlannedOp *> Pipeline::ops() const {
    std::vector<const PlannedOp *> all = graph_->decode_ops();
    const auto prefill = graph_->prefill_ops(), taps = graph_->taps().ops(), cache = cache_plan_->ops();
    all.insert(all.end(), prefill.begin(), prefill.end());
    all.insert(all.end(), taps.begin(), taps.end());
    all.insert(all.end(), cache.begin(), cache.end());
    std::set<const PlannedOp *> seen;
    std::erase_if(all, [&](const PlannedOp *op) { return !seen.insert(op).second; });
    return all;
}

// A fallback is never silent.
void Pipeline::report_fallbacks(const std::vector<const PlannedOp *> &ops) const {
    if (quiet_fallbacks_) return;
    for (const ExplainRow &row : explain_rows(ops)) {
        if (row.rung == "native") continue;
        log().warn("backend {} does not run {} itself ({}); {} of them run {}: {}. `strict: true` makes this "
                   "an error",
                   executor_->device().plugin(), row.op, row.reason, row.count, row.rung, row.kernel);
    }
}

std::string Pipeline::explain() const {
    const Device &device = executor_->device();
    const std::string prefill_title = fmt::format("prefill, up to {} tokens a step", graph_->max_tokens());
    std::string conversions;
    for (const Conversion &conversion : source_->conversions(*config_.model.weights))
        conversions += "  " + conversion_text(conversion) + "\n";
    return fmt::format("backend {} on '{}': {}\nsync: {}\nweights: {} ({} read per token)\n{}KV cache: keys "
                       "{}, values {}, {} per token\n",
                       device.plugin(), device.device_info().name, device.info().description,
                       to_string(executor_->stream().strategy()), weights_->dtype_name(),
                       format_bytes(weights_->bytes_per_token(device)), conversions,
                       keel_dtype_name(kv_shape_.key_dtype), keel_dtype_name(kv_shape_.value_dtype),
                       format_bytes(kv_shape_.bytes_per_token())) +
           explain_table("decode, one token a step", explain_rows(graph_->decode_ops())) +
           explain_table(prefill_title, explain_rows(graph_->prefill_ops())) +
           (graph_->taps().ops().empty()
                ? std::string{}
                : explain_table("of these, run for the policy", explain_rows(graph_->taps().ops()))) +
           (cache_plan_->ops().empty()
                ? std::string{}
                : explain_table("KV cache, when slots go", explain_rows(cache_plan_->ops())));
}

} // namespace keel
