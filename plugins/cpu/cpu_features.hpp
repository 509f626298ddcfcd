// What this machine's processor and operating system offer. Built without architecture flags.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// Instruction sets that kernels are compiled for, in rising order of speed.
enum class Isa : uint32_t { scalar = 0, avx2 = 1, avx512 = 2 };

const char *isa_name(Isa isa);

struct CpuFeatures {
    bool avx2;   // AVX2 + FMA + F16C, and the system saves the upper halves
    bool avx512; // avx2 and F, BW, VL, DQ, and the system saves the masks and 32 wide registers
};

// CPUID and XGETBV, asked afresh on each call. [any]
CpuFeatures cpu_features();

bool isa_available(const CpuFeatures &features, Isa isa);
Isa best_isa(const CpuFeatures &features);

// "scalar, avx2": what `params.isa` may name here. Static text.
const char *available_isas(const CpuFeatures &features);

// The processor's own name, NUL at the end; empty if it does not tell.
void cpu_name(char out[49]);

} // namespace keel_cpu
