#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/evict/pressure.hpp"
#include "kv/store/kv_shape.hpp"
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

// What happens to the RoPE positions of the keys that stay if slots before them are evicted.
enum class KvPositions {
    absolute,  // a key keeps the position with which it was written
    rerotated, // each eviction closes the gaps between positions, so distances follow the slots
    // Absolute, until the oldest key would be farther back than the model was trained for; then the
    // gaps are closed.
    automatic,
};

enum class BudgetUnit {
    none,   // the policy's own budget, or none
    tokens, // slots per head on average
    ratio,  // share of the tokens seen so far, above 0 and at most 1
    mib,    // MiB of whole blocks in all layers and heads
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
    // A sequence may protect a longer prefix, see CacheManager::protect_prefix.
    bool protect_system_prompt = false;
    KvPositions positions = KvPositions::absolute;
    // The policy's memory beside the cache counts against KvShape::max_bytes and a budget in MiB.
    bool count_policy_state = false;
    bool at_prefill_end = true, at_budget = true, at_insert = false; // triggers
    std::optional<int64_t> every_n;                                  // and every n tokens
    std::optional<PressureConfig> pressure;                          // and when memory is short
    std::shared_ptr<SystemMonitor> monitor;                          // NULL: the system's
    // A policy acts on the layers of the model that have no attention window, or on all layers if
    // all have one. Only these layers are counted here. If several backends hold them: the number
    // of the first such layer in this cache, and how many the model has. model_layers 0: this cache
    // has all of them.
    uint32_t first_layer = 0, model_layers = 0;
    // The number in the model of each layer on which the policy acts, for the log and for errors.
    // Empty: layer l is first_layer + l.
    std::vector<uint32_t> layer_numbers;
    uint32_t number_of(uint32_t layer) const {
        return layer_numbers.empty() ? first_layer + layer : layer_numbers[layer];
    }
    bool other_backends = false; // other backends run layers of the model too
    WindowedLayers windowed;     // the layers with a window, which have a cache of their own
    // For the log: how many layers of the model have a window, how many layers it has, and the
    // window in tokens. 0: no layer has a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t model_window = 0;
    // Sequences will be forked into policies that evict. So the cache keeps all tokens even if all
    // layers of the model have a window.
    bool keeps_for_forks = false;
    // Slots are evicted, here or in a cache of other layers. A sequence may then have more tokens
    // than KvShape::max_slots, and layers with a window hold their window of them.
    bool evicts = false;
    std::vector<TokenRun> pinned; // further tokens that stay, by their numbers since the start
    uint64_t seed = 0;
    std::string log; // path of the eviction log; empty: none
    // The log of another setup of the same sequences; NULL: `log` is opened.
    std::shared_ptr<EvictionLog> shared_log;
    bool log_positions = false;   // the log also lists the tokens that stay
    int64_t trained_context = 0;  // positions the model was trained for
    float attention_scale = 0;    // factor of the logits; 0: 1 / sqrt(head_dim)
    int64_t attention_window = 0; // window of the layers on which the policy acts; 0: none
    float attention_softcap = 0;  // cap of the logits; 0: none
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
