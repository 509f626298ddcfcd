#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <span>

namespace keel {

// Counts what the evictions of one sequence did.
struct EvictionTotals {
    uint64_t evictions = 0; // number of evictions
    // Slots that the head with the most losses lost, summed over evictions.
    uint64_t evicted_slots = 0;
    uint64_t evicted_bytes = 0; // bytes of blocks that evictions freed, summed over evictions
    double microseconds = 0;    // time on the host, including waits for the device

    // Adds one eviction. Each record is of another layer.
    void add(std::span<const EvictionRecord> records);
    void save(StateWriter &out) const;
    void load(StateReader &in);
};

} // namespace keel
