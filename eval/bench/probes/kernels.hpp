#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// The loops that the probes time, for one instruction set. The result of each loop depends on all
// work of the loop, so that the compiler cannot remove a part of the work.
struct ProbeKernels {
    const char *isa; // instruction set of the loops, for example "avx512"
    // Reads every byte once. `bytes` must be a multiple of probe_read_unit. `at` must be the
    // beginning of a cache line.
    uint64_t (*read)(const std::byte *at, size_t bytes);
    // Like `read`, with software prefetch.
    uint64_t (*read_prefetched)(const std::byte *at, size_t bytes);
    // Computes f32 multiply-adds in several independent chains of registers.
    float (*multiply_add)(uint64_t rounds);
    uint64_t flops_per_round; // two operations for each multiply-add
};

inline constexpr size_t probe_read_unit = 1024;
// Prefetch distance in bytes. Distances of 512 to 1024 were the fastest on the tested machines.
inline constexpr size_t probe_prefetch_distance = 1024;

// Loops with plain 128-bit vectors, which every processor of the architecture supports.
const ProbeKernels &baseline_probe_kernels();
// The loops with the widest vectors that the processor and the operating system support. These
// loops are never slower than the baseline loops.
const ProbeKernels &best_probe_kernels();

} // namespace keel
