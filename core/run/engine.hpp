#pragma once

#include "graph/graph.hpp"
#include "graph/weights.hpp"
#include "kv/evict/policy_setup.hpp"
#include "kv/store/batch_view.hpp"
#include "ops/executor.hpp"
#include "platform/memory.hpp"
#include "run/layer_split.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel {

// Returns true if the device allocates system memory, and false if it has its own memory.
bool uses_system_memory(const Device &device);
// Returns total and free bytes of the memory in which the device allocates weights and caches. Some
// devices have their own memory and do not report its free bytes. For such a device, all memory
// that this process has not allocated counts as free. total is 0 if the device reports nothing.
MemoryInfo memory_of(const Device &device);

// Runs a model, or some of its layers, on one backend. It has the device, the weights, the planned
// ops and the plan of the cache. A pipeline owns one or several engines. The members are made step
// by step, in their order. The reason: Keel must know the memory of a context before it reads the
// first weight.
struct Engine {
    // For messages and reports: the name in the config's hybrid section, or the plugin's name.
    std::string name;
    LayerRange part; // layers that the engine runs
    std::unique_ptr<Executor> executor;
    LayerSplit split; // which of the engine's layers have a window
    KvShape kv_shape; // shape of the layers on which a policy acts
    // The context by which LongRoPE chooses its factors: model.context, or else the model's own
    // length. Free memory may lower kv_shape.max_slots, but it does not change this number.
    int64_t rope_context = 0;
    WindowedLayers windowed; // the layers with a window that have their own cache
    std::unique_ptr<KvTemplate> kv_template;
    std::unique_ptr<BatchTemplate> batch_template; // NULL: sequences take steps one by one
    std::unique_ptr<ModelWeights> weights;
    std::unique_ptr<Graph> graph;
    std::unique_ptr<PolicySetup> policy_setup;

    Device &device() const { return executor->device(); }
    keel_buffer_kind placement() const { return executor->placement(); }
    // Returns true if the engine's device, or a device to which its ops fall back, was lost.
    bool is_lost() const { return executor->lost_device() != nullptr; }
    // Returns the most tokens of a prefill step.
    uint32_t prefill_chunk() const;
    // See keel::uses_system_memory and memory_of.
    bool uses_system_memory() const { return keel::uses_system_memory(device()); }
    MemoryInfo memory() const { return memory_of(device()); }
    // Returns the most cache bytes of the layers that hold only their window and on which no policy
    // acts, for all sequences together.
    uint64_t window_bytes() const;
    // Returns the most cache bytes of the layers that hold only their window, for one sequence
    // under the config's policy. Returns 0 if there are no such layers. See LayerSplit.
    uint64_t held_window_bytes() const;
    // Returns the slots of a head in the cache of the layers with a window, for one sequence and a
    // context of `context` tokens. A sequence from which slots are evicted can be longer than the
    // context.
    int64_t most_window_slots(int64_t context) const;
    // Returns the bytes that each token adds in the layers that hold all tokens.
    uint64_t bytes_per_token() const;
    // Returns the bytes of the cache's block tables, lengths and positions and of the RoPE tables,
    // for a context of `context` tokens. Keys and values are not included.
    uint64_t table_bytes(const ModelConfig &model, int64_t context) const;
    // Makes the members after kv_shape. policy_setup must already exist.
    void load(const std::shared_ptr<const ModelSource> &source, const LoadOptions &options,
              uint32_t max_logit_rows, uint32_t batch);
    // Returns all planned ops of prefill steps, decode steps and evictions. Each op occurs once.
    std::vector<const PlannedOp *> ops() const;
};

} // namespace keel
