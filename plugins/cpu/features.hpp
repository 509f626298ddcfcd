// What this machine's processor and operating system offer. Built without architecture flags.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// Instruction sets that kernels are compiled for: `scalar` anywhere, then each architecture's in
// rising order of speed.
enum class Isa : uint32_t {
    scalar = 0,
    avx2 = 1,
    avx512 = 2,
    vnni = 3,
    avx512bf16 = 4,
    amx = 5,
    neon = 6,
    dotprod = 7,
    fp16 = 8,
    i8mm = 9
};
constexpr uint32_t isa_count = 10;

const char *isa_name(Isa isa);

// In each architecture one holds what is below it.
struct CpuFeatures {
    bool avx2;       // AVX2 + FMA + F16C, and the system saves the upper halves
    bool avx512;     // avx2 and F, BW, VL, DQ, and the system saves the masks and 32 wide registers
    bool vnni;       // avx512, and products of four bytes, summed (AVX512_VNNI)
    bool avx512bf16; // vnni, and products of two bf16, summed (AVX512_BF16)
    // those are faster than multiply-adds in f32: AMD's are twice as fast, Intel's half
    bool bf16_gains;
    // streams are read faster when their lines are asked for ahead: not on AMD's up to Zen 4
    bool prefetch_gains;
    bool amx;     // avx512bf16, tiles with products of bf16, and this process may use them
    bool neon;    // ARM64: always there
    bool dotprod; // products of four signed bytes, summed (FEAT_DotProd)
    // dotprod, f16 arithmetic, and f16 products summed in f32 (FEAT_FP16, FEAT_FHM)
    bool fp16;
    // fp16, and products of small matrices of bytes and of bf16 (FEAT_I8MM, FEAT_BF16)
    bool i8mm;
};

// The processor asked afresh on each call. Where it has AMX the system is asked to let this process
// use it, for good. [any]
CpuFeatures cpu_features();

bool isa_available(const CpuFeatures &features, Isa isa);
// The fastest; avx512bf16 only where it gains.
Isa best_isa(const CpuFeatures &features);

// "scalar, avx2": what `params.isa` may name here, into `out`, which is returned.
constexpr uint32_t isa_list_bytes = 64;
const char *available_isas(const CpuFeatures &features, char (&out)[isa_list_bytes]);

// The processor's own name, NUL at the end; empty if it does not tell.
void cpu_name(char out[49]);

} // namespace keel_cpu
