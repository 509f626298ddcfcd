#include "cpu_features.hpp"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace keel_cpu {

const char *isa_name(Isa isa) {
    switch (isa) {
    case Isa::avx2:
        return "avx2";
    case Isa::avx512:
        return "avx512";
    default:
        return "scalar";
    }
}

#if defined(__x86_64__)
namespace {

// Raw CPUID rather than __builtin_cpu_supports, whose list of names differs between compilers.
struct Leaf {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
    Leaf r;
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
    return r;
}

// XCR0: which register states the system saves on a context switch. Only after CPUID reported OSXSAVE.
uint64_t xgetbv0() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
}

bool bit(uint32_t word, unsigned n) {
    return (word >> n & 1u) != 0;
}

} // namespace

CpuFeatures cpu_features() {
    CpuFeatures f{};
    const Leaf one = cpuid(1, 0);
    if (!bit(one.c, 27)) return f; // OSXSAVE
    const uint64_t saved = xgetbv0();
    const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
    const Leaf seven = cpuid(7, 0);
    f.avx2 = ymm && bit(one.c, 28) && bit(one.c, 12) && bit(one.c, 29) && bit(seven.b, 5);
    f.avx512 = f.avx2 && zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);
#if defined(KEEL_CPU_EMULATED_AVX512)
    f.avx512 = f.avx2; // a test build, whose AVX-512 kernels are made of narrower instructions
#endif
    return f;
}

void cpu_name(char out[49]) {
    memset(out, 0, 49);
    if (cpuid(0x80000000u, 0).a < 0x80000004u) return;
    for (uint32_t i = 0; i < 3; ++i) {
        const Leaf r = cpuid(0x80000002u + i, 0);
        memcpy(out + 16 * i, &r, 16);
    }
}
#else
CpuFeatures cpu_features() {
    return {};
}
void cpu_name(char out[49]) {
    memset(out, 0, 49);
}
#endif

bool isa_available(const CpuFeatures &f, Isa isa) {
    switch (isa) {
    case Isa::avx2:
        return f.avx2;
    case Isa::avx512:
        return f.avx512;
    default:
        return true;
    }
}

Isa best_isa(const CpuFeatures &f) {
    return f.avx512 ? Isa::avx512 : f.avx2 ? Isa::avx2 : Isa::scalar;
}

const char *available_isas(const CpuFeatures &f) {
    return f.avx512 ? "scalar, avx2, avx512" : f.avx2 ? "scalar, avx2" : "scalar";
}

} // namespace keel_cpu
