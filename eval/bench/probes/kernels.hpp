#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// The loops that the probes time, for one instruction set. What they return depends on all they
// did, so that no compiler drops it.
struct ProbeKernels {
    const char *isa; // "avx512": what the loops were written for
    // Reads every byte once; `bytes` is a multiple of probe_read_unit, `at` lies on a cache line.
    uint64_t (*read)(const std::byte *at, size_t bytes);
    uint64_t (*read_prefetched)(const std::byte *at,
                                size_t bytes); // the same, asking for lines ahead
    float (*multiply_add)(uint64_t rounds);    // independent chains in registers, f32
    uint64_t flops_per_round;                  // two for each multiply and add
};

inline constexpr size_t probe_read_unit = 1024;
inline constexpr size_t probe_prefetch_distance =
    1024; // bytes ahead; 512 to 1024 are best on what we tried

// Plain 128-bit vectors: what every processor of the architecture has.
const ProbeKernels &baseline_probe_kernels();
// The widest that processor and system have; never slower code than the baseline's.
const ProbeKernels &best_probe_kernels();

} // namespace keel
