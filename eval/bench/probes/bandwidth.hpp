#pragma once

#include "eval/bench/probes/kernels.hpp"
#include "platform/memory.hpp"
#include "platform/threads.hpp"

#include <algorithm>

namespace keel {

// Returns the size of a buffer that does not fit in any CPU cache. The size is the larger of 1 GiB
// and four times the last-level cache, but at most a quarter of the available memory.
uint64_t probe_buffer_bytes(uint64_t last_level_cache, uint64_t available_memory);

// Measures the memory bandwidth. All threads of a team read at the same time. Each thread reads its
// own part of a buffer. The memory bandwidth limits a decode step. On shared machines, the
// bandwidth varies with time. So measure the bandwidth close in time to the numbers that are
// compared with the bandwidth.
class BandwidthProbe {
  public:
    struct Reading {
        // Bytes per second: with plain loads, and with software prefetch.
        double plain = 0, prefetched = 0;
        double best() const { return std::max(plain, prefetched); }
    };

    // Allocates `bytes` of memory (rounded down to whole units for each thread) and writes to this
    // memory. Throws Error(resource) if there is not enough memory. If the buffer has less than one
    // unit for each thread, measure() returns 0.
    BandwidthProbe(ThreadTeam &team, uint64_t bytes);

    Reading measure(); // reads the buffer once with plain loads, once with prefetch
    uint64_t bytes() const { return buffer_.size(); }
    const char *isa() const { return kernels_.isa; }

  private:
    double pass(uint64_t (*read)(const std::byte *, size_t));

    ThreadTeam &team_;
    const ProbeKernels &kernels_;
    PageBuffer buffer_;
};

} // namespace keel
