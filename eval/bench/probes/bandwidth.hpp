#pragma once

#include "eval/bench/probes/kernels.hpp"
#include "platform/memory.hpp"
#include "platform/threads.hpp"

#include <algorithm>

namespace keel {

// A buffer that no cache holds: 1 GiB, or four times the last-level cache, but at most a quarter of
// the memory that is free.
uint64_t probe_buffer_bytes(uint64_t last_level_cache, uint64_t available_memory);

// Measures how fast the machine's memory can be read, by all threads of a team at once, each
// through a part of its own: the limit of a decode step. The limit drifts on shared machines, so it
// is to be measured beside what is compared with it.
class BandwidthProbe {
  public:
    struct Reading {
        double plain = 0,
               prefetched = 0; // bytes per second: as loads come, and with software prefetch
        double best() const { return std::max(plain, prefetched); }
    };

    // Takes and touches `bytes` of memory (rounded down to whole units per thread); Error(resource)
    // if there is not that much. A buffer of less than a unit per thread measures nothing.
    BandwidthProbe(ThreadTeam &team, uint64_t bytes);

    Reading measure(); // one pass of each kind
    uint64_t bytes() const { return buffer_.size(); }
    const char *isa() const { return kernels_.isa; }

  private:
    double pass(uint64_t (*read)(const std::byte *, size_t));

    ThreadTeam &team_;
    const ProbeKernels &kernels_;
    PageBuffer buffer_;
};

} // namespace keel
