#include "run/open_engines.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "model/rope_frequencies.hpp"
#include "reference/reference.hpp"
#include "run/bind_plugin.hpp"

#include <algorithm>

namespace keel {
namespace {

using pipeline::HybridMode;

SyncStrategy sync_of(const pipeline::SyncSection &section) {
    switch (*section.strategy) {
    case pipeline::SyncStrategy::lazy: return {SyncStrategy::Kind::lazy, 0};
    case pipeline::SyncStrategy::eager: return {SyncStrategy::Kind::eager, 0};
    case pipeline::SyncStrategy::batched:
        return {SyncStrategy::Kind::batched, static_cast<uint32_t>(section.ops_per_submit())};
    case pipeline::SyncStrategy::automatic: break;
    }
    return {};
}

// Opens the engines of a config.
class Opening {
  public:
    Opening(const pipeline::PipelineConfig &config, const ModelConfig &model,
            const std::shared_ptr<HostServices> &host, const DeviceOpener &opener)
        : config_(config), model_(model), host_(host), opener_(opener),
          set_(config.hybrid.mode() == HybridMode::taking_turns) {
        executor_options_.strict = *config.strict;
        executor_options_.sync = sync_of(config.sync);
        executor_options_.replay = *config.sync.replay != pipeline::StepReplay::off;
        executor_options_.ahead = *config.sync.ahead != pipeline::StepAhead::off;
    }

    EngineSet open() {
        switch (config_.hybrid.mode()) {
        case HybridMode::none: open_one(); break;
        case HybridMode::by_layers:
            executor_options_.fallback = open_fallback();
            open_layers();
            break;
        case HybridMode::taking_turns: executor_options_.fallback = open_fallback(); open_turns();
        }
        return std::move(set_);
    }

  private:
    std::shared_ptr<Device> open_fallback() const {
        if (opener_.fallback) return opener_.fallback();
        if (is_reference(*config_.fallback)) return nullptr;
        pipeline::BackendSection fallback;
        fallback.plugin = config_.fallback;
        fallback.device.value = "auto";
        return open_device(fallback, host_);
    }

    std::shared_ptr<Device> open_backend(const std::string &name,
                                         const pipeline::BackendSection &section) const {
        if (opener_.backend) {
            if (auto device = opener_.backend(name)) return device;
        }
        return open_device(section, host_);
    }

    void add(const std::string &name, const std::shared_ptr<Device> &device,
             const LayerRange &part) {
        auto engine = std::make_unique<Engine>();
        engine->name = name;
        engine->part = part;
        engine->executor = std::make_unique<Executor>(device, executor_options_);
        set_.add(std::move(engine), device);
    }

    void open_one() {
        const std::shared_ptr<Device> device =
            open_backend(*config_.backend.plugin, config_.backend);
        executor_options_.fallback = open_fallback();
        add(device->plugin(), device, {0, model_.layers});
    }

    void open_turns() {
        const pipeline::HybridSection &hybrid = config_.hybrid;
        const std::string decode =
            hybrid.decode->empty() ? hybrid.backends->front().name : *hybrid.decode;
        const std::string prefill = hybrid.prefill->empty() ? decode : *hybrid.prefill;
        for (const pipeline::HybridBackend &backend : *hybrid.backends) {
            if (backend.name == decode) set_.set_decode(set_.size());
            if (backend.name == prefill) set_.set_prefill(set_.size());
            add(backend.name, open_backend(backend.name, backend), {0, model_.layers});
        }
        if (!hybrid.switching.has(pipeline::SwitchTrigger::pressure)) return;
        const Engine &from = set_.decode(), &to = *set_.find(*hybrid.switching.to);
        if (from.uses_system_memory() && to.uses_system_memory()) {
            log().warn("{}: backends {} and {} both keep their cache in the system's memory, so a "
                       "switch under memory pressure frees no system memory",
                       to_string(hybrid.switching.on.where), from.name, to.name);
        }
    }

    void open_layers() {
        const auto &shares = *config_.hybrid.layers;
        if (shares.back().last != model_.layers - 1) {
            throw_at(shares.back().where, ErrorKind::input,
                     "expected the ranges in 'hybrid.layers' to end at layer {}, the last one "
                     "of {}, found {}",
                     model_.layers - 1, config_.model.path->string(), shares.back().last);
        }
        std::vector<std::pair<std::string, std::shared_ptr<Device>>> opened;
        for (const pipeline::LayerShare &share : shares) {
            if (set_.size() > 0 && set_.back()->name == share.on) {
                set_.back()->part.end = share.last + 1;
                continue;
            }
            const auto same = [&](const auto &o) { return o.first == share.on; };
            auto found = std::find_if(opened.begin(), opened.end(), same);
            if (found == opened.end()) {
                const pipeline::HybridBackend &backend = config_.hybrid.backend(share.on);
                found = opened.insert(found, {share.on, open_backend(share.on, backend)});
            }
            add(share.on, found->second, {share.first, share.last + 1});
        }
    }

    const pipeline::PipelineConfig &config_;
    const ModelConfig &model_;
    const std::shared_ptr<HostServices> &host_;
    const DeviceOpener &opener_;
    Executor::Options executor_options_;
    EngineSet set_;
};

// Makes the cache shape for all layers of an engine.
KvShape make_kv_shape(const pipeline::PipelineConfig &config, const ModelConfig &m,
                      const Engine &engine, uint32_t sequences) {
    KvShape shape;
    shape.layers = engine.split.acts_on();
    shape.heads = static_cast<uint32_t>(m.heads);
    shape.kv_heads = static_cast<uint32_t>(m.kv_heads);
    shape.head_dim = static_cast<uint32_t>(m.head_dim);
    shape.key_dtype = config.kv.key_type();
    shape.value_dtype = config.kv.value_type();
    if (config.hybrid.is_given()) {
        const pipeline::HybridBackend &own = config.hybrid.backend(engine.name);
        shape.key_dtype = own.key_dtype->value_or(own.kv_dtype->value_or(shape.key_dtype));
        shape.value_dtype = own.value_dtype->value_or(own.kv_dtype->value_or(shape.value_dtype));
    }
    shape.block_slots = engine.device().info().kv_block_slots;
    shape.max_slots = config.model.context->value_or(m.max_positions);
    shape.sequences = sequences;
    shape.window = engine.split.all_windowed() ? engine.split.window() : 0;
    return shape;
}

// Returns the layers with a window, if the engine also has layers without a window. Otherwise the
// result is empty.
WindowedLayers make_windowed(const Engine &engine, int64_t slots) {
    WindowedLayers windowed;
    if (engine.split.window() == 0) return windowed;
    windowed.slots = slots;
    if (engine.split.windowed() == 0) return windowed;
    windowed.has_window = engine.split.has_window();
    windowed.shape = engine.kv_shape;
    windowed.shape.layers = engine.split.windowed();
    windowed.shape.window = engine.split.window();
    // This can be more than the context, because a sequence from which slots are evicted can be
    // longer than the context.
    windowed.shape.max_slots = slots;
    // one more cache, for the copy while the model repeats the context
    windowed.shape.sequences = engine.kv_shape.sequences + 1;
    return windowed;
}

// Returns the number of slots per head that holds the window on every engine, because a sequence
// can move to another engine.
int64_t most_window_slots(const EngineSet &set) {
    int64_t most = 0;
    uint32_t chunk = 0, block = 0;
    for (const auto &engine : set) {
        chunk = std::max(chunk, engine->prefill_chunk());
        block = std::max(block, engine->kv_shape.block_slots);
    }
    for (const auto &engine : set)
        most = std::max(most, window_slots(engine->split.window(), chunk, block));
    return most;
}

// kv.max_mib limits all layers together. Layers with a window get the bytes that they need. The
// other layers share the remaining bytes. If no bytes remain, the other layers get 1 byte, which
// MemoryPlan::check_cap refuses.
void share_cap(const pipeline::PipelineConfig &config, const EngineSet &set) {
    const std::optional<uint64_t> cap = config.kv.max_bytes();
    if (!cap) return;
    const bool takes_turns = config.hybrid.mode() == HybridMode::taking_turns;
    const uint64_t layers = set.front()->split.of_model();
    uint64_t windowed = 0;
    for (const auto &engine : set)
        windowed = takes_turns ? std::max(windowed, engine->window_bytes())
                               : windowed + engine->window_bytes();
    const uint64_t rest = *cap > windowed ? *cap - windowed : 0;
    for (const auto &engine : set) {
        KvShape &shape = engine->kv_shape;
        const uint64_t share = shape.layers == layers ? rest : rest / layers * shape.layers;
        shape.max_bytes =
            std::max<uint64_t>(1, engine->split.only_holds() ? engine->window_bytes() : share);
        if (shape.layers == layers) shape.cap_beside = *cap - std::min(*cap, shape.max_bytes);
    }
}

void say_rope_factors(const pipeline::PipelineConfig &config, const ModelConfig &model,
                      int64_t context) {
    const RopeScaling &s = model.rope_scaling;
    if (s.kind != RopeScaling::Kind::longrope) return;
    const char *reason =
        config.model.context->has_value() ? "model.context is" : "the model was made for";
    if (has_long_factors(s, context)) {
        log().info("LongRoPE uses its long factors, because {} {} tokens (for short texts set "
                   "model.context to at most {})",
                   reason, context, s.original_context);
    } else {
        log().info("LongRoPE uses its short factors, because {} {} tokens (at most {})", reason,
                   context, s.original_context);
    }
}

} // namespace

EngineSet open_engines(const pipeline::PipelineConfig &config, const ModelConfig &model,
                       const std::shared_ptr<HostServices> &host, const DeviceOpener &opener,
                       uint32_t sequences, uint32_t prefill_chunk) {
    EngineSet set = Opening(config, model, host, opener).open();
    for (const auto &engine : set)
        if (prefill_chunk > 0) engine->device().limit_prefill_chunk(prefill_chunk);
    const int64_t context = config.model.context->value_or(model.max_positions);
    say_rope_factors(config, model, context);
    for (const auto &engine : set) {
        engine->rope_context = context;
        engine->split = LayerSplit(model, engine->part, context);
        engine->kv_shape = make_kv_shape(config, model, *engine, sequences);
    }
    const int64_t slots = most_window_slots(set);
    for (const auto &engine : set) engine->windowed = make_windowed(*engine, slots);
    share_cap(config, set);
    return set;
}

} // namespace keel
