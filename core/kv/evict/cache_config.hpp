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

// The RoPE positions of the keys that stay after slots before them were evicted.
enum class KvPositions {
    absolute,  // a key keeps the position with which it was written
    rerotated, // each eviction closes the gaps between positions, so the distance of two keys
               // equals the distance of their slots
    // The positions are absolute until the oldest key would be farther back than the model was
    // trained for. Then the gaps are closed, as with `rerotated`.
    automatic,
};

enum class BudgetUnit {
    none,   // the config has no budget; the policy can have a budget of its own
    tokens, // slots per head on average
    ratio,  // the budget is a share of the tokens seen so far, above 0 and at most 1
    mib,    // the budget is in MiB of whole blocks in all layers and heads
};

// A loaded policy or allocator, with its bound parameters.
template <typename Table> struct KvPlugin {
    std::string name;                          // "snapkv"
    const Table *table = nullptr;              // the core's copy; outlives the setup
    const keel_param *const *params = nullptr; // checked and complete; outlive the setup
    uint32_t n_params = 0;
    PluginPlaces places = {}; // places in the config, for messages
};

// The settings of a cache: the config's policy section, and properties of the model that policies
// need.
struct CacheConfig {
    KvPlugin<keel_policy> policy;
    KvPlugin<keel_allocator> allocator; // if `table` is NULL, all heads get the same budget
    BudgetUnit budget_unit = BudgetUnit::none;
    double budget = 0; // number in `budget_unit`
    // The number of slots above the budget at which the budget trigger fires. nullopt: an eighth of
    // the budget.
    std::optional<int64_t> slack;
    int64_t protect_prefix = 0, protect_recent = 0; // first and last slots that stay
    // true: a sequence can protect a longer prefix, see CacheManager::protect_prefix.
    bool protect_system_prompt = false;
    KvPositions positions = KvPositions::absolute;
    // true: the policy's memory counts against KvShape::max_bytes and a budget in MiB. This memory
    // is not part of the cache.
    bool count_policy_state = false;
    bool at_prefill_end = true, at_budget = true, at_insert = false; // triggers
    std::optional<int64_t> every_n;                                  // trigger: every n tokens
    // trigger: the system's memory is short
    std::optional<PressureConfig> pressure;
    // NULL: the monitor of this system
    std::shared_ptr<SystemMonitor> monitor;
    // A policy acts on the layers of the model that have no attention window. If all layers have a
    // window, it acts on all layers. first_layer and model_layers count only the layers on which
    // the policy acts.
    // - first_layer: how many of these layers come before this cache's first layer
    // - model_layers: how many of these layers the model has; 0: this cache has all of them
    uint32_t first_layer = 0, model_layers = 0;
    // For each layer on which the policy acts: its number in the model, for the log and for errors.
    // If empty, layer l has the number first_layer + l.
    std::vector<uint32_t> layer_numbers;
    uint32_t number_of(uint32_t layer) const {
        return layer_numbers.empty() ? first_layer + layer : layer_numbers[layer];
    }
    bool other_backends = false; // true: other backends also run layers of the model
    WindowedLayers windowed;     // the layers with a window, which have a cache of their own
    // For the log: how many layers of the model have a window, how many layers it has, and the
    // window in tokens. All are 0 if no layer has a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t model_window = 0;
    // true: sequences will be forked into setups with policies that evict. Then the cache keeps all
    // tokens, even if all layers of the model have a window.
    bool keeps_for_forks = false;
    // true: a policy evicts slots of the sequence, in this cache or in the cache of the sequence's
    // other layers. Then a sequence can have more tokens than KvShape::max_slots, and layers with a
    // window hold only the tokens of their window.
    bool evicts = false;
    std::vector<TokenRun> pinned; // further tokens that are never evicted; a token's number counts
                                  // from the start of the sequence
    uint64_t seed = 0;
    std::string log; // path of the eviction log; empty: none
    // The log that another setup of the same sequences has opened. If NULL, this setup opens the
    // file `log`.
    std::shared_ptr<EvictionLog> shared_log;
    bool log_positions = false;   // true: the log also lists the tokens that stay
    int64_t trained_context = 0;  // number of positions that the model was trained for
    float attention_scale = 0;    // factor of the logits; 0: 1 / sqrt(head_dim)
    int64_t attention_window = 0; // window of the layers on which the policy acts; 0: none
    float attention_softcap = 0;  // cap of the logits; 0: none
    // The model's RoPE frequencies, for rotating keys again: radians per token for each pair of
    // elements, [rot / 2].
    std::vector<double> rope_frequencies;
    double rope_factor = 1; // RoPE's cos and sin are multiplied by it (YaRN, LongRoPE)
    // The RoPE frequencies of the layers for which local_rope_layers is true. These are the layers
    // of Gemma 3 with an attention window, and layers without RoPE, which have frequencies of 0.
    // Their factor is 1.
    std::vector<double> local_rope_frequencies;
    std::vector<bool> local_rope_layers; // [layers]; empty: all layers have the same frequencies
    const std::vector<double> &rope_frequencies_of(uint32_t layer) const {
        return layer < local_rope_layers.size() && local_rope_layers[layer] ? local_rope_frequencies
                                                                            : rope_frequencies;
    }
    double rope_factor_of(uint32_t layer) const {
        return layer < local_rope_layers.size() && local_rope_layers[layer] ? 1 : rope_factor;
    }
    keel_rope_mode rope_mode = KEEL_ROPE_HALF_SPLIT;
};

} // namespace keel
