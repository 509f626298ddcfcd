#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/evict/pressure.hpp"
#include "plugin/host.hpp"
#include "plugin/places.hpp"

#include <keel/allocator.h>
#include <keel/kv.h>
#include <keel/policy.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// What RoPE positions of kept keys do when slots before them go.
enum class KvPositions {
    absolute,  // a key keeps the position it was written with, for ever
    rerotated, // at each eviction positions close up, so that distances follow the slots
    // Absolute, until the oldest key would be farther back than the model was trained for; then the
    // positions close up.
    automatic,
};

enum class BudgetUnit {
    none,   // the policy's own, or none at all
    tokens, // slots per head on average
    ratio,  // of the tokens seen so far, above 0 and at most 1
    mib,    // of all layers and heads, whole blocks counted
};

// A policy or allocator that was adopted, with its bound parameters.
template <typename Table> struct KvPlugin {
    std::string name;                          // "snapkv"
    const Table *table = nullptr;              // the core's copy; outlives the setup
    const keel_param *const *params = nullptr; // checked and complete; outlive the setup
    uint32_t n_params = 0;
    PluginPlaces places = {}; // in the config, for messages
};

// How a cache is managed: the config's policy section, and what policies need to know of the model.
struct CacheConfig {
    KvPlugin<keel_policy> policy;
    KvPlugin<keel_allocator> allocator; // table NULL: the budget is the same for all heads
    BudgetUnit budget_unit = BudgetUnit::none;
    double budget = 0; // in that unit
    // Slots above the budget before the budget trigger fires; nullopt: an eighth of the budget.
    std::optional<int64_t> slack;
    int64_t protect_prefix = 0, protect_recent = 0; // first and last slots that stay
    // A sequence may ask for a longer prefix, see CacheManager::protect_prefix.
    bool protect_system_prompt = false;
    KvPositions positions = KvPositions::absolute;
    bool at_prefill_end = true, at_budget = true, at_insert = false; // triggers
    std::optional<int64_t> every_n;                                  // and every n tokens
    std::optional<PressureConfig> pressure;                          // and when memory is short
    std::shared_ptr<SystemMonitor> monitor;                          // who tells; NULL: the system
    // Which layers of the model these are, where another cache holds the others: policies are told
    // the model's numbers.
    uint32_t first_layer = 0, model_layers = 0; // 0: all of them
    std::vector<TokenRun> pinned; // further tokens that stay, by their numbers since the start
    uint64_t seed = 0;
    std::string log; // path of the eviction log; empty: none
    // The log of another setup of the same sequences; NULL: `log` is opened.
    std::shared_ptr<EvictionLog> shared_log;
    bool log_positions = false;   // which tokens were kept, too
    int64_t trained_context = 0;  // positions the model was trained for
    float attention_scale = 0;    // of the logits; 0: 1 / sqrt(head_dim)
    int64_t attention_window = 0; // the narrowest attention window of a layer; 0: no layer has one
    float attention_softcap = 0;  // of the logits; 0: none
    // RoPE as the model has it, for re-rotation: radians per token of each pair, [rot / 2].
    std::vector<double> rope_frequencies;
    // The same of the layers that are true in local_rope_layers: Gemma 3's layers with a window.
    std::vector<double> local_rope_frequencies;
    std::vector<bool> local_rope_layers; // [layers]; empty: all layers have the same
    const std::vector<double> &rope_frequencies_of(uint32_t layer) const {
        return layer < local_rope_layers.size() && local_rope_layers[layer] ? local_rope_frequencies
                                                                            : rope_frequencies;
    }
    keel_rope_mode rope_mode = KEEL_ROPE_HALF_SPLIT;
};

} // namespace keel
