// The features of the machine's processor that the operating system lets a process use. This file
// is compiled without architecture flags.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// The instruction sets for which kernels are compiled. `scalar` runs on any processor. The sets of
// each architecture follow, the slowest first.
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

// One flag per instruction set. True: the processor and the operating system support the set.
// Within an architecture, each set includes the sets listed before it.
struct CpuFeatures {
    bool avx2; // AVX2, FMA and F16C; the system saves the upper halves of the registers
    // avx2 plus AVX512F, BW, VL and DQ; the system saves the masks and 32 wide registers
    bool avx512;
    bool vnni;       // avx512, and instructions that sum products of four bytes (AVX512_VNNI)
    bool avx512bf16; // vnni, and instructions that sum products of two bf16 (AVX512_BF16)
    // True if bf16 products are faster than f32 multiply-adds. They are twice as fast on AMD, and
    // half as fast on Intel.
    bool bf16_gains;
    // True if software prefetch makes sequential reads faster. This is false on AMD up to Zen 4.
    bool prefetch_gains;
    bool amx;  // avx512bf16 plus tiles with bf16 products, which the system lets this process use
    bool neon; // always true on ARM64
    bool dotprod; // instructions that sum products of four signed bytes (FEAT_DotProd)
    // dotprod, f16 arithmetic, and f16 products that are summed in f32 (FEAT_FP16, FEAT_FHM)
    bool fp16;
    // fp16, and products of small matrices of bytes and of bf16 (FEAT_I8MM, FEAT_BF16)
    bool i8mm;
};

// Reads the features from the processor on each call. If the processor has AMX, the function
// requests permission for this process to use AMX. The permission is permanent. Any thread may call
// this function.
CpuFeatures cpu_features();

bool isa_available(const CpuFeatures &features, Isa isa);
// Returns the fastest instruction set of a processor. avx512bf16 is returned only if it is faster
// than vnni.
Isa best_isa(const CpuFeatures &features);

// Writes the list of allowed values of the parameter `isa` on this machine to `out`, for example
// "scalar, avx2". Returns `out`.
constexpr uint32_t isa_list_bytes = 64;
const char *available_isas(const CpuFeatures &features, char (&out)[isa_list_bytes]);

// Writes the processor's name to `out`, NUL-terminated. The name is empty if the processor does not
// report one.
void cpu_name(char out[49]);

} // namespace keel_cpu
