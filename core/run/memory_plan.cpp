#include "run/memory_plan.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/config_places.hpp"
#include "kv/evict/cache_manager.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

using pipeline::HybridMode;

void MemoryPlan::check_cap() const {
    for (const auto &engine : engines_) {
        const KvShape &shape = engine->kv_shape;
        const uint64_t of_part = uint64_t{shape.layers} * shape.kv_heads * shape.block_bytes();
        if (shape.max_bytes >= of_part || !*config_.kv.max_mib) continue;
        const uint64_t least =
            uint64_t{engine->split.of_model()} * shape.kv_heads * shape.block_bytes();
        const auto mib = [](uint64_t bytes) {
            return std::ceil(1000 * static_cast<double>(bytes) / bytes_per_mib) / 1000;
        };
        uint64_t windows = 0;
        for (const auto &each : engines_) windows += each->window_bytes();
        if (windows > 0) {
            throw_at(
                config_.kv.max_mib.where, ErrorKind::input,
                "expected 'kv.max_mib' to hold an attention window of {} tokens in {} layers "
                "({:.3f} MiB with the tokens of a step) and a block of {} slots for each head in "
                "the other layers, together {:.3f} MiB with keys in {} and values in {}; found {}",
                engine->split.window(), engine->split.model_windowed(), mib(windows),
                shape.block_slots, mib(windows + least), keel_dtype_name(shape.key_dtype),
                keel_dtype_name(shape.value_dtype), **config_.kv.max_mib);
        }
        throw_at(config_.kv.max_mib.where, ErrorKind::input,
                 "expected 'kv.max_mib' to hold a block of {} slots for each head in each "
                 "layer, which takes {:.3f} MiB with keys in {} and values in {}; found {}",
                 shape.block_slots, mib(least), keel_dtype_name(shape.key_dtype),
                 keel_dtype_name(shape.value_dtype), **config_.kv.max_mib);
    }
}

// A device with its own memory holds a part of the tables. If the tables do not fit in the host's
// memory, the device's memory has no room for them either.
void MemoryPlan::check_tables() const {
    const MemoryInfo info = memory_ ? memory_() : memory_info();
    const int64_t context = engines_.decode().kv_shape.max_slots;
    uint64_t bytes = 0;
    for (const auto &engine : engines_)
        bytes += engine->table_bytes(source_.config(), engine->kv_shape.max_slots) * batch_;
    at_its_line(config_, config_.model.path.where, [&] {
        require_memory(bytes,
                       fmt::format("model.context: RoPE and cache tables for {} tokens", context),
                       "lower model.context", info);
    });
}

LoadOptions MemoryPlan::load_options(const Engine &engine) const {
    LoadOptions load;
    load.part = engine.part;
    load.dtype = *config_.model.weights;
    load.weight_dtypes = engine.device().info().weight_dtypes;
    load.max_m = engine.prefill_chunk() + batch_ - 1;
    load.memory = memory_ ? memory_() : engine.memory();
    return load;
}

bool MemoryPlan::fit_context() const {
    int64_t slots = engines_.decode().kv_shape.max_slots;
    bool changed = false;
    for (const auto &engine : engines_) changed = fit_context(*engine, slots) || changed;
    for (const auto &engine : engines_) engine->kv_shape.max_slots = slots;
    return changed;
}

// Returns the memory that these engines need together.
MemoryNeed MemoryPlan::need(const std::vector<const Engine *> &engines, int64_t context) const {
    const HybridMode mode = config_.hybrid.mode();
    MemoryNeed all;
    uint64_t largest = 0;
    for (const Engine *e : engines) {
        const KvShape &shape = e->kv_shape;
        const int64_t chunk = e->device().info().prefill_chunk;
        const MemoryNeed n =
            memory_need(source_, *config_.model.weights, shape.key_dtype, shape.value_dtype,
                        context, chunk, e->device().info().weight_dtypes, batch_);
        const int64_t held = std::min(context, e->policy_setup->budget().peak(chunk));
        const uint64_t cache =
            shape.bytes_of(held) + e->windowed.shape.bytes_of(e->most_window_slots(context));
        all.weights += mode == HybridMode::none
                           ? n.weights
                           : keel::weight_bytes(source_, load_options(*e)).loaded;
        if (mode == HybridMode::taking_turns) {
            // A sequence has one cache. While it moves from one backend to another, it has two.
            all.cache = std::max(all.cache, largest + cache);
            largest = std::max(largest, cache);
        } else {
            const uint64_t caches = batch_ * cache;
            all.cache += cache_bytes_ > 0 ? std::min(cache_bytes_, caches) : caches;
        }
        all.work += n.work + batch_ * (e->table_bytes(source_.config(), context) +
                                       CacheManager::policy_bytes(*e->policy_setup, context, held));
    }
    return all;
}

bool MemoryPlan::fit_context(const Engine &of, int64_t &slots) const {
    const MemoryInfo info = memory_ ? memory_() : of.memory();
    if (info.total == 0) return false;
    const int64_t trained = source_.config().max_positions;
    std::vector<const Engine *> beside; // engines that use the same memory as the present engine
    for (const auto &engine : engines_) {
        const bool both = engine->uses_system_memory() && of.uses_system_memory();
        if (engine.get() == &of || both || &engine->device() == &of.device())
            beside.push_back(engine.get());
    }
    // If the weights alone do not fit, loading them throws an error that says what to do.
    if (need(beside, 1).weights > info.available) return false;
    const auto longest = [&](uint64_t bytes) {
        return longest_context(slots, bytes,
                               [&](int64_t context) { return need(beside, context).total(); });
    };
    const bool chosen = config_.model.context->has_value();
    const int64_t wanted = slots, fits = longest(chosen ? info.available : usable_bytes(info));
    if (!chosen && fits > 0) {
        slots = fits;
        if (fits < trained && fits != wanted) {
            log().info("the context is limited to {} tokens, because more do not fit into the free "
                       "memory; the model was made for {} tokens (model.context sets the limit)",
                       fits, trained);
        }
        return fits != wanted;
    }
    if (fits == wanted) return false;
    const int64_t least = chosen ? wanted : std::min<int64_t>(wanted, 256);
    const MemoryNeed n = need(beside, least);
    const std::string cure =
        fits > 0 ? fmt::format("lower model.context to {}, or set kv.max_mib or a smaller kv.dtype",
                               fits)
                 : "free some memory, or set model.weights to a smaller type (q8_0, q4_0)";
    const SourceLocation &where = chosen ? config_.model.context.where : config_.model.path.where;
    throw_error(
        ErrorKind::resource,
        "{}model.context: {} tokens need {} of memory (weights {}, KV cache {}, workspace {}), "
        "{} is available ({}); {}",
        PluginPlaces::prefix(where), least, format_bytes(n.total()), format_bytes(n.weights),
        format_bytes(n.cache), format_bytes(n.work), format_bytes(info.available), info.limited_by,
        cure);
}

} // namespace keel
