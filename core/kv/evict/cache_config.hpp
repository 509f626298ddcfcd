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
    automatic, // absolute, until the oldest key would lie further back than the model was trained for; then closed up
};

enum class BudgetUnit {
    none,   // the policy's own, or none at all
    tokens, // slots per head on average
    ratio,  // of the tokens seen so far, above 0 and at most 1
    mib,    // of all layers and heads, whole blocks counted
};

// A policy or allocator that was adopted, with its bound parameters.
template <typename Table>
struct KvPlugin {
    std::string name;                          // "snapkv"
    const Table *table = nullptr;              // the core's copy; outlives the plan
    const keel_param *const *params = nullptr; // checked and complete; outlive the plan
    uint32_t n_params = 0;
    PluginPlaces places = {}; // in the config, for messages
};

// How a cache is managed: the config's policy section in the core's terms.
struct CacheConfig {
    KvPlugin<keel_policy> policy;
    KvPlugin<keel_allocator> allocator; // table NULL: the budget is the same for all heads
    BudgetUnit budget_unit = BudgetUnit::none;
    double budget = 0; // in that unit
    std::optional<int64_t>
        slack; // slots above the budget before the budget trigger fires; nullopt: an eighth of the budget
    int64_t protect_prefix = 0, protect_recent = 0; // first and last slots that stay
    bool protect_system_prompt =
        false; // a sequence may ask for a longer prefix, see CacheManager::protect_prefix
    KvPositions positions = KvPositions::absolute;
    bool at_prefill_end = true, at_budget = true, at_insert = false; // triggers
    std::optional<int64_t> every_n;                                  // and every n tokens
    std::optional<PressureConfig> pressure;                          // and when memory is short
    std::shared_ptr<SystemMonitor> monitor;                          // who tells; NULL: the system
    // Which layers of the model these are, where another cache holds the others: policies are told the model's numbers.
    uint32_t first_layer = 0, model_layers = 0; // 0: all of them
    std::vector<TokenRun>
        pinned; // tokens that stay beside the protected prefix, wherever they come
    uint64_t seed = 0;
    std::string log; // path of the eviction log; empty: none
    std::shared_ptr<EvictionLog>
        shared_log; // of another plan of the same sequences, in the place of one of its own
    bool log_positions = false;  // which tokens were kept, too
    int64_t trained_context = 0; // positions the model was trained for
    float attention_scale = 0;   // of the logits; 0: 1 / sqrt(head_dim)
    int64_t attention_window =
        0; // the narrowest window that a layer's attention has; 0: none has one
    float attention_softcap = 0; // of the logits; 0: none
    // RoPE as the model has it, for re-rotation: radians per token of each pair, [rot / 2].
    std::vector<double> rope_frequencies;
    std::vector<double>
        local_rope_frequencies; // of the layers that are true here, as many: Gemma 3's with a window
    std::vector<bool> local_rope_layers; // [layers]; empty: all layers have the same
    const std::vector<double> &rope_frequencies_of(uint32_t layer) const {
        return layer < local_rope_layers.size() && local_rope_layers[layer] ? local_rope_frequencies
                                                                            : rope_frequencies;
    }
    keel_rope_mode rope_mode = KEEL_ROPE_HALF_SPLIT;
};

} // namespace keel
