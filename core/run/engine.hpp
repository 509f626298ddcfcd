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

// Does the device allocate system memory? If not, it has memory of its own.
bool uses_system_memory(const Device &device);
// Total and free bytes of the memory in which the device allocates weights and caches. If a device
// has memory of its own and does not report how much is free, everything counts as free that this
// process has not allocated. total == 0: the device reports nothing.
MemoryInfo memory_of(const Device &device);

// Runs a model, or some of its layers, on one backend: device, weights, planned ops, the plan of
// its cache. A pipeline owns one or several. It is made step by step, in the order of its members,
// because the memory that a context takes is known before the first weight is read.
struct Engine {
    // For messages and reports: the name in the config's hybrid section, or the plugin's name.
    std::string name;
    LayerRange part; // layers that it runs
    std::unique_ptr<Executor> executor;
    LayerSplit split;        // which of its layers have a window
    KvShape kv_shape;        // shape of the layers on which a policy acts
    WindowedLayers windowed; // its layers that have a cache of their own
    std::unique_ptr<KvTemplate> kv_template;
    std::unique_ptr<BatchTemplate> batch_template; // NULL: sequences take steps one by one
    std::unique_ptr<ModelWeights> weights;
    std::unique_ptr<Graph> graph;
    std::unique_ptr<PolicySetup> policy_setup;

    Device &device() const { return executor->device(); }
    keel_buffer_kind placement() const { return executor->placement(); }
    // Was its device lost, or a device to which its ops fall back?
    bool is_lost() const { return executor->lost_device() != nullptr; }
    // The most tokens of a prefill step.
    uint32_t prefill_chunk() const;
    // See keel::uses_system_memory and memory_of.
    bool uses_system_memory() const { return keel::uses_system_memory(device()); }
    MemoryInfo memory() const { return memory_of(device()); }
    // The most bytes in the layers that hold only their window and on which no policy acts, for all
    // sequences together.
    uint64_t window_bytes() const;
    // The most bytes in the layers that hold only their window, for one sequence under the config's
    // policy. 0: there are no such layers. See LayerSplit.
    uint64_t held_window_bytes() const;
    // Slots of a head in the cache of the windowed layers, for one sequence and a context of this
    // many tokens. A sequence from which slots are evicted passes the context.
    int64_t most_window_slots(int64_t context) const;
    // The bytes that each token adds in the other layers.
    uint64_t bytes_per_token() const;
    // Bytes of the cache's block tables, lengths and positions and of the RoPE tables, for a
    // context of this length. Keys and values are not included.
    uint64_t table_bytes(const ModelConfig &model, int64_t context) const;
    // Makes the members after kv_shape. policy_setup has to exist already.
    void load(const std::shared_ptr<const ModelSource> &source, const LoadOptions &options,
              uint32_t max_logit_rows, uint32_t batch);
    // All planned ops, each once: of prefill and decode steps, and of evictions.
    std::vector<const PlannedOp *> ops() const;
};

} // namespace keel
