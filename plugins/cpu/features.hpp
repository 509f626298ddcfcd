// Features of the machine's processor and operating system. This file is compiled without
// architecture flags.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// Instruction sets for which kernels are compiled: `scalar` for any processor, then the sets of
// each architecture in rising order of speed.
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

// In each architecture, each instruction set includes the sets listed before it.
struct CpuFeatures {
    bool avx2;       // AVX2 + FMA + F16C, and the system saves the upper halves of the registers
    bool avx512;     // avx2 plus F, BW, VL and DQ; the system saves the masks and 32 wide registers
    bool vnni;       // avx512 plus sums of products of four bytes (AVX512_VNNI)
    bool avx512bf16; // vnni plus sums of products of two bf16 (AVX512_BF16)
    // whether bf16 products are faster than f32 multiply-adds: on AMD twice as fast, on Intel half
    // as fast
    bool bf16_gains;
    // whether software prefetch makes streams faster: not on AMD up to Zen 4
    bool prefetch_gains;
    bool amx;     // avx512bf16 plus tiles with bf16 products; this process may use them
    bool neon;    // always true on ARM64
    bool dotprod; // sums of products of four signed bytes (FEAT_DotProd)
    // dotprod plus f16 arithmetic, and f16 products summed in f32 (FEAT_FP16, FEAT_FHM)
    bool fp16;
    // fp16 plus products of small matrices of bytes and of bf16 (FEAT_I8MM, FEAT_BF16)
    bool i8mm;
};

// Queries the processor on each call. If it has AMX, the system is asked to let this process use
// AMX, which stays in effect. [any]
CpuFeatures cpu_features();

bool isa_available(const CpuFeatures &features, Isa isa);
// The fastest set. avx512bf16 is chosen only if it is faster than vnni.
Isa best_isa(const CpuFeatures &features);

// Writes the words that `params.isa` may have on this machine to `out`, such as "scalar, avx2".
// Returns `out`.
constexpr uint32_t isa_list_bytes = 64;
const char *available_isas(const CpuFeatures &features, char (&out)[isa_list_bytes]);

// The processor's name, NUL-terminated. Empty if the processor does not report one.
void cpu_name(char out[49]);

} // namespace keel_cpu
