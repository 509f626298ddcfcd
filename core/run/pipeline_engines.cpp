// What a pipeline runs on: devices are opened, the memory is shared out, weights are loaded.
#include "run/pipeline.hpp"

#include "base/display.hpp"
#include "base/log.hpp"
#include "config/config_places.hpp"
#include "kv/evict/cache_manager.hpp"
#include "plugin/parallel.hpp"
#include "reference/reference.hpp"
#include "run/memory_need.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

using pipeline::HybridMode;

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

// ---- opening ------------------------------------------------------------------------------------

std::shared_ptr<Device> Pipeline::open_fallback() const {
    if (open_fallback_) return open_fallback_();
    if (is_reference(*config_.fallback)) return nullptr;
    pipeline::BackendSection fallback;
    fallback.plugin = config_.fallback;
    fallback.device.value = "auto";
    return open_device(fallback, host_);
}

std::shared_ptr<Device> Pipeline::open_backend(const pipeline::HybridBackend &backend) const {
    if (open_device_) {
        if (auto device = open_device_(backend.name)) return device;
    }
    return open_device(backend, host_);
}

void Pipeline::add_engine(const std::string &name, std::shared_ptr<Device> device,
                          const LayerRange &part) {
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end())
        devices_.push_back(device);
    auto engine = std::make_unique<Engine>();
    engine->name = name;
    engine->part = part;
    engine->executor = std::make_unique<Executor>(std::move(device), executor_options_);
    engines_.push_back(std::move(engine));
}

void Pipeline::open_engines() {
    executor_options_.strict = *config_.strict;
    executor_options_.sync = sync_of(config_.sync);
    executor_options_.replay = *config_.sync.replay != pipeline::StepReplay::off;
    executor_options_.ahead = *config_.sync.ahead != pipeline::StepAhead::off;
    const pipeline::HybridSection &hybrid = config_.hybrid;
    const LayerRange all = {0, model().layers};
    if (hybrid.mode() == HybridMode::none) {
        std::shared_ptr<Device> device;
        if (open_device_) device = open_device_(*config_.backend.plugin);
        if (device == nullptr) device = open_device(config_.backend, host_);
        executor_options_.fallback = open_fallback();
        const std::string name = device->plugin();
        return add_engine(name, std::move(device), all);
    }
    executor_options_.fallback = open_fallback();
    if (hybrid.mode() == HybridMode::by_layers) return open_layers();
    const std::string decode =
        hybrid.decode->empty() ? hybrid.backends->front().name : *hybrid.decode;
    const std::string prefill = hybrid.prefill->empty() ? decode : *hybrid.prefill;
    for (const pipeline::HybridBackend &backend : *hybrid.backends) {
        if (backend.name == decode) main_ = engines_.size();
        if (backend.name == prefill) prefill_ = engines_.size();
        add_engine(backend.name, open_backend(backend), all);
    }
    if (!hybrid.switching.has(pipeline::SwitchTrigger::pressure)) return;
    const Engine &to = *find_engine(*hybrid.switching.to);
    if (engine().uses_system_memory() && to.uses_system_memory()) {
        log().warn(
            "{}: backends {} and {} both keep their cache in the system's memory: a switch under "
            "pressure frees nothing there",
            to_string(hybrid.switching.on.where), engine().name, to.name);
    }
}

const Device *Pipeline::lost_device() const {
    for (const auto &engine : engines_)
        if (const Device *lost = engine->executor->lost_device()) return lost;
    return nullptr;
}

void Pipeline::open_layers() {
    const auto &shares = *config_.hybrid.layers;
    if (shares.back().last != model().layers - 1) {
        throw_error(ErrorKind::input,
                    "{}: expected the ranges in 'hybrid.layers' to end at layer {}, the last one "
                    "of {}, found {}",
                    to_string(shares.back().where), model().layers - 1,
                    config_.model.path->string(), shares.back().last);
    }
    std::vector<std::pair<std::string, std::shared_ptr<Device>>> opened;
    for (const pipeline::LayerShare &share : shares) {
        if (!engines_.empty() && engines_.back()->name == share.on) {
            engines_.back()->part.end = share.last + 1;
            continue;
        }
        const auto same = [&](const auto &o) { return o.first == share.on; };
        auto found = std::find_if(opened.begin(), opened.end(), same);
        if (found == opened.end())
            found =
                opened.insert(found, {share.on, open_backend(config_.hybrid.backend(share.on))});
        add_engine(share.on, found->second, {share.first, share.last + 1});
    }
}

void Pipeline::make_kv_shape(Engine &engine) const {
    const ModelConfig &m = model();
    KvShape &shape = engine.kv_shape;
    shape.layers = static_cast<uint32_t>(engine.part.count());
    shape.heads = static_cast<uint32_t>(m.heads);
    shape.kv_heads = static_cast<uint32_t>(m.kv_heads);
    shape.head_dim = static_cast<uint32_t>(m.head_dim);
    shape.key_dtype = config_.kv.key_type();
    shape.value_dtype = config_.kv.value_type();
    if (config_.hybrid.is_given()) {
        const pipeline::HybridBackend &own = config_.hybrid.backend(engine.name);
        shape.key_dtype = own.key_dtype->value_or(own.kv_dtype->value_or(shape.key_dtype));
        shape.value_dtype = own.value_dtype->value_or(own.kv_dtype->value_or(shape.value_dtype));
    }
    shape.block_slots = engine.device().info().kv_block_slots;
    shape.max_slots = config_.model.context->value_or(m.max_positions);
    // A cap is of all layers.
    shape.max_bytes =
        config_.kv.max_bytes().value_or(0) / static_cast<uint64_t>(m.layers) * shape.layers;
    if (shape.layers == m.layers) shape.max_bytes = config_.kv.max_bytes().value_or(0);
    shape.sequences = sequences_;
}

// What cannot be done for several sequences at once, before anything is opened.
void Pipeline::check_batch() const {
    if (batch_ > most_batch)
        throw_error(ErrorKind::usage, "{} sequences at once; at most {} take steps together",
                    batch_, most_batch);
    if (batch_ == 1) return;
    refuse_hybrid("several sequences at once");
    if (*config_.kv.max_mib) {
        throw_error(ErrorKind::input,
                    "{}: 'kv.max_mib' caps the cache of one sequence, and {} are to be there at "
                    "once; leave "
                    "it out, or give each a policy.budget",
                    to_string(config_.kv.max_mib.where), batch_);
    }
}

// Below it not one token would fit.
void Pipeline::check_cap() const {
    for (const auto &engine : engines_) {
        const KvShape &shape = engine->kv_shape;
        const uint64_t of_part = uint64_t{shape.layers} * shape.kv_heads * shape.block_bytes();
        if (shape.max_bytes >= of_part || !*config_.kv.max_mib) continue;
        const uint64_t least =
            static_cast<uint64_t>(model().layers) * shape.kv_heads * shape.block_bytes();
        constexpr double mib = 1048576;
        throw_error(ErrorKind::input,
                    "{}: expected 'kv.max_mib' to hold a block of {} slots for each head in each "
                    "layer, which takes "
                    "{:.3f} MiB with keys in {} and values in {}; found {}",
                    to_string(config_.kv.max_mib.where), shape.block_slots,
                    std::ceil(1000 * static_cast<double>(least) / mib) / 1000,
                    keel_dtype_name(shape.key_dtype), keel_dtype_name(shape.value_dtype),
                    **config_.kv.max_mib);
    }
}

// ---- memory -------------------------------------------------------------------------------------

// A model folder may claim any context, so this is asked before anything is allocated; one whose
// tables alone do not fit is absurd, and refused rather than lowered. Devices with memory of their
// own hold a part of the tables; what is not there on the host would be too much for them as well.
void Pipeline::check_tables() const {
    const MemoryInfo info = memory_ ? memory_() : memory_info();
    uint64_t bytes = 0;
    for (const auto &engine : engines_)
        bytes += engine->table_bytes(model(), engine->kv_shape.max_slots) * batch_;
    at_its_line(config_, config_.model.path.where, [&] {
        require_memory(bytes,
                       fmt::format("model.context: RoPE and cache tables for {} tokens", context()),
                       "lower model.context", info);
    });
}

// Weights, cache and workspace beside each other. A context that nobody asked for becomes what
// there is room for; one that somebody asked for is kept or refused, before the first weight is
// read. True if the context is another one now.
bool Pipeline::fit_context() {
    int64_t slots = context();
    bool changed = false;
    for (const auto &engine : engines_)
        changed = fit_context(*engine, slots) || changed;
    for (const auto &engine : engines_)
        engine->kv_shape.max_slots = slots;
    return changed;
}

bool Pipeline::fit_context(const Engine &of, int64_t &slots) const {
    const MemoryInfo info = memory_ ? memory_() : of.memory();
    if (info.total == 0) return false;
    const ModelConfig &m = model();
    // Engines whose memory is the same one share it.
    std::vector<const Engine *> beside;
    for (const auto &engine : engines_) {
        const bool both = engine->uses_system_memory() && of.uses_system_memory();
        if (engine.get() == &of || both || &engine->device() == &of.device())
            beside.push_back(engine.get());
    }
    // Where backends take turns a sequence has one cache, and two while it moves from one to the
    // other.
    const bool takes_turns = mode() == HybridMode::taking_turns;
    const auto need = [&](int64_t context) {
        MemoryNeed all;
        uint64_t largest = 0;
        for (const Engine *e : beside) {
            const KvShape &shape = e->kv_shape;
            const int64_t chunk = e->device().info().prefill_chunk, block = shape.block_slots;
            const MemoryNeed n =
                memory_need(*source_, *config_.model.weights, shape.key_dtype, shape.value_dtype,
                            context, chunk, e->device().info().weight_dtypes);
            const int64_t held = std::min(context, e->cache_plan->budget().peak(chunk));
            const uint64_t cache = static_cast<uint64_t>((held + block - 1) / block) *
                                   shape.block_bytes() * shape.layers * shape.kv_heads;
            all.weights += mode() == HybridMode::none
                               ? n.weights
                               : keel::weight_bytes(*source_, load_options(*e, {})).loaded;
            if (takes_turns) {
                all.cache = std::max(all.cache, largest + cache);
                largest = std::max(largest, cache);
            } else {
                all.cache += batch_ * cache;
            }
            all.work +=
                n.work + batch_ * (e->table_bytes(m, context) +
                                   CacheManager::policy_bytes(*e->cache_plan, context, held));
        }
        return all;
    };
    if (need(1).weights > info.available)
        return false; // refused where they are loaded, with the cure for that
    const auto longest = [&](uint64_t bytes) {
        return longest_context(slots, bytes,
                               [&](int64_t context) { return need(context).total(); });
    };
    const bool chosen = config_.model.context->has_value();
    const int64_t wanted = slots, fits = longest(chosen ? info.available : usable_bytes(info));
    if (!chosen && fits > 0) {
        slots = fits;
        if (fits < m.max_positions && fits != wanted) {
            log().info("the context is limited to {} tokens, which the free memory holds; the "
                       "model was made "
                       "for {} (model.context sets it)",
                       fits, m.max_positions);
        }
        return fits != wanted;
    }
    if (fits == wanted) return false;
    const MemoryNeed n = need(chosen ? wanted : std::min<int64_t>(wanted, 256));
    const std::string cure =
        fits > 0 ? fmt::format("lower model.context to {}, or set kv.max_mib or a smaller kv.dtype",
                               fits)
                 : "free some, or set model.weights to a smaller type (q8_0, q4_0)";
    const SourceLocation &where = chosen ? config_.model.context.where : config_.model.path.where;
    throw_error(ErrorKind::resource,
                "{}model.context: {} tokens need {} of memory (weights {}, KV cache {}, workspace "
                "{}), {} is "
                "available ({}); {}",
                PluginPlaces::prefix(where), chosen ? wanted : std::min<int64_t>(wanted, 256),
                format_bytes(n.total()), format_bytes(n.weights), format_bytes(n.cache),
                format_bytes(n.work), format_bytes(info.available), info.limited_by, cure);
}

// ---- weights ------------------------------------------------------------------------------------

LoadOptions Pipeline::load_options(const Engine &engine, const PipelineOptions &options) const {
    LoadOptions load;
    load.part = engine.part;
    load.dtype = *config_.model.weights;
    load.weight_dtypes = engine.device().info().weight_dtypes;
    load.max_m = std::max(engine.prefill_chunk(), batch_);
    load.parallel = parallel_on(*host_);
    load.memory = memory_ ? memory_() : engine.memory();
    if (options.progress)
        load.progress = [&options](uint64_t done, uint64_t total) {
            options.progress("loading", done, total);
        };
    return load;
}

void Pipeline::load_weights(const PipelineOptions &options) {
    for (const auto &engine : engines_) {
        const uint32_t chunk = engine->prefill_chunk();
        engine->weights = std::make_unique<ModelWeights>(*engine->executor, source_,
                                                         load_options(*engine, options));
        engine->kv_template = std::make_unique<KvTemplate>(engine->kv_shape);
        GraphOptions graph;
        graph.max_tokens = chunk;
        graph.max_logit_rows = std::min(options.max_logit_rows, chunk);
        graph.kv = engine->kv_template->view();
        graph.taps = engine->cache_plan->tap_forms();
        graph.rope_rows = std::max<int64_t>(engine->kv_shape.max_slots, chunk);
        graph.batch = batch_;
        if (batch_ > 1) {
            engine->batch_template = std::make_unique<BatchTemplate>(engine->kv_shape, batch_);
            graph.batch_kv = engine->batch_template->view();
        }
        engine->graph = std::make_unique<Graph>(*engine->executor, *engine->weights, graph);
    }
}

} // namespace keel
