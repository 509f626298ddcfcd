#pragma once

#include "config/config.hpp"
#include "graph/weights.hpp"
#include "model/source.hpp"
#include "run/engine_set.hpp"
#include "run/memory_need.hpp"

#include <functional>

namespace keel {

// Compares the memory that a pipeline needs with the memory that is free, before the first weight
// is read.
class MemoryPlan {
  public:
    // All arguments must outlive this object. `batch`: the number of sequences that run steps
    // together. `memory` returns the memory to plan with (total and available). If `memory` is
    // empty, this class asks the devices and the system. `cache_bytes`: see PipelineOptions.
    MemoryPlan(const pipeline::PipelineConfig &config, const ModelSource &source,
               const EngineSet &engines, uint32_t batch, const std::function<MemoryInfo()> &memory,
               uint64_t cache_bytes = 0)
        : config_(config), source_(source), engines_(engines), batch_(batch), memory_(memory),
          cache_bytes_(cache_bytes) {}

    // Throws Error(input) if kv.max_mib has no room for one block of each head.
    void check_cap() const;
    // Throws if the RoPE tables and cache tables for the context do not fit in memory. Keel does
    // not lower such a context. A model folder can claim any context, so call this before memory is
    // allocated.
    void check_tables() const;
    // Checks that weights, cache and workspace fit together. If the config gives a context that
    // does not fit, throws Error(resource). If the config gives no context, lowers the context of
    // all engines until it fits. Returns true if the context was lowered.
    bool fit_context() const;
    // Returns the options with which the weights of an engine are loaded.
    LoadOptions load_options(const Engine &engine) const;

  private:
    bool fit_context(const Engine &engine, int64_t &slots) const;
    MemoryNeed need(const std::vector<const Engine *> &engines, int64_t context) const;

    const pipeline::PipelineConfig &config_;
    const ModelSource &source_;
    const EngineSet &engines_;
    uint32_t batch_;
    const std::function<MemoryInfo()> &memory_;
    uint64_t cache_bytes_; // the most bytes of all caches; 0: batch_ full caches
};

} // namespace keel
