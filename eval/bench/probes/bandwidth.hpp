#pragma once

#include "eval/bench/probes/kernels.hpp"
#include "platform/memory.hpp"
#include "platform/threads.hpp"

#include <algorithm>

namespace keel {

// The size of a buffer that does not fit in any CPU cache: 1 GiB, or four times the last-level
// cache if that is more. At most a quarter of the free memory.
uint64_t probe_buffer_bytes(uint64_t last_level_cache, uint64_t available_memory);

// Measures the memory bandwidth: all threads of a team read at the same time, each its own part of
// a buffer. This bandwidth limits a decode step. It drifts on shared machines, so measure it next
// to the numbers that are compared with it.
class BandwidthProbe {
  public:
    struct Reading {
        // Bytes per second with plain loads, and with software prefetch.
        double plain = 0, prefetched = 0;
        double best() const { return std::max(plain, prefetched); }
    };

    // Allocates and touches `bytes` of memory (rounded down to whole units per thread). Throws
    // Error(resource) if there is not enough memory. A buffer of less than one unit per thread
    // measures nothing.
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
