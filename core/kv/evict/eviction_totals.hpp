#pragma once

#include "kv/evict/eviction_log.hpp"
#include "kv/store/state_io.hpp"

#include <cstdint>
#include <span>

namespace keel {

// Counts what the evictions of one sequence did.
struct EvictionTotals {
    uint64_t evictions = 0;     // times that slots were evicted
    uint64_t evicted_slots = 0; // of the head that lost most, summed over evictions
    uint64_t evicted_bytes = 0; // of blocks that evictions freed, summed over evictions
    double microseconds = 0;    // on the host, with its waits for the device

    // One eviction; its records are of different layers.
    void add(std::span<const EvictionRecord> records);
    void save(StateWriter &out) const;
    void load(StateReader &in);
};

} // namespace keel
