#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// The loops that the probes time, for one instruction set. Their result depends on all their work,
// so that no compiler removes it.
struct ProbeKernels {
    const char *isa; // instruction set of the loops: "avx512"
    // Reads every byte once. `bytes` is a multiple of probe_read_unit. `at` is at the beginning of
    // a cache line.
    uint64_t (*read)(const std::byte *at, size_t bytes);
    // Like `read`, with software prefetch.
    uint64_t (*read_prefetched)(const std::byte *at, size_t bytes);
    float (*multiply_add)(uint64_t rounds); // f32 multiply-adds in independent chains of registers
    uint64_t flops_per_round;               // two for each multiply-add
};

inline constexpr size_t probe_read_unit = 1024;
// Prefetch distance in bytes. 512 to 1024 were best on the machines that were tried.
inline constexpr size_t probe_prefetch_distance = 1024;

// Plain 128-bit vectors, which every processor of the architecture has.
const ProbeKernels &baseline_probe_kernels();
// The widest loops that the processor and the system support. Never slower than the baseline's.
const ProbeKernels &best_probe_kernels();

} // namespace keel
