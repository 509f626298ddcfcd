#include "cpu/features.hpp"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace keel_cpu {

const char *isa_name(Isa isa) {
    constexpr const char *names[isa_count] = {"scalar", "avx2", "avx512",  "vnni", "avx512bf16",
                                              "amx",    "neon", "dotprod", "fp16", "i8mm"};
    return names[static_cast<uint32_t>(isa)];
}

#if defined(__x86_64__)
namespace {

// The result of the CPUID instruction. The code calls CPUID itself, because compilers differ in the
// feature names that __builtin_cpu_supports accepts.
struct Leaf {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
    Leaf r;
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
    return r;
}

// Returns XCR0, which says which registers the operating system saves on a context switch. This
// function may be called only if CPUID reports OSXSAVE.
uint64_t xgetbv0() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
}

bool bit(uint32_t word, unsigned n) { return (word >> n & 1u) != 0; }

#if !defined(KEEL_CPU_EMULATED_AVX512)
// Returns true if the operating system lets this process use AMX tiles, which take 8 KiB per
// thread. The call requests the permission for existing and future threads.
bool may_use_tiles() {
#if defined(__linux__)
    // The values of ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA in the Linux headers.
    constexpr long ask_for_state = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, ask_for_state, tile_data) == 0;
#else
    return false;
#endif
}
#endif

bool made_by_amd() {
    const Leaf zero = cpuid(0, 0);
    // the vendor name AuthenticAMD
    return zero.b == 0x68747541 && zero.d == 0x69746e65 && zero.c == 0x444d4163;
}

constexpr uint32_t zen_5 = 26;

uint32_t family_of(uint32_t signature) {
    const uint32_t base = signature >> 8 & 15;
    return base == 15 ? base + (signature >> 20 & 255) : base;
}

} // namespace

CpuFeatures cpu_features() {
    CpuFeatures f{};
    const Leaf one = cpuid(1, 0);
    if (!bit(one.c, 27)) return f; // bit 27 is OSXSAVE
    const uint64_t saved = xgetbv0();
    const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
    const Leaf seven = cpuid(7, 0);
    f.avx2 = ymm && bit(one.c, 28) && bit(one.c, 12) && bit(one.c, 29) && bit(seven.b, 5);
    f.avx512 = f.avx2 && zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) &&
               bit(seven.b, 31);
    f.vnni = f.avx512 && bit(seven.c, 11);
    f.avx512bf16 = f.vnni && seven.a >= 1 && bit(cpuid(7, 1).a, 5);
    f.bf16_gains = made_by_amd();
    f.prefetch_gains = !f.bf16_gains || family_of(one.a) >= zen_5;
#if defined(KEEL_CPU_EMULATED_AVX512)
    f.vnni = f.avx512bf16 = false;
    // In the emulated test build, AVX-512 kernels are compiled to AVX2 instructions, and AMX tiles
    // are plain C++.
    f.avx512 = f.amx = f.avx2;
#else
    const bool tiles = (saved & 0x60000) == 0x60000 && bit(seven.d, 24) && bit(seven.d, 22);
    f.amx = f.avx512bf16 && tiles && may_use_tiles();
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
#elif defined(__aarch64__)
namespace {

#if defined(__linux__) // on Linux and Android, the kernel provides the values of the ID registers
constexpr unsigned long hwcap_asimdhp = 1ul << 10, hwcap_cpuid = 1ul << 11,
                        hwcap_asimddp = 1ul << 20, hwcap_asimdfhm = 1ul << 23,
                        hwcap2_i8mm = 1ul << 13, hwcap2_bf16 = 1ul << 14;

bool all_of(unsigned long word, unsigned long bits) { return (word & bits) == bits; }
#elif defined(__APPLE__)
bool has(const char *feature) {
    int value = 0;
    size_t bytes = sizeof value;
    return sysctlbyname(feature, &value, &bytes, nullptr, 0) == 0 && value != 0;
}
#endif

} // namespace

CpuFeatures cpu_features() {
    CpuFeatures f{};
    f.neon = f.prefetch_gains = true;
#if defined(__linux__)
    const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    f.dotprod = all_of(one, hwcap_asimddp);
    f.fp16 = f.dotprod && all_of(one, hwcap_asimdhp | hwcap_asimdfhm);
    f.i8mm = f.fp16 && all_of(two, hwcap2_i8mm | hwcap2_bf16);
#elif defined(__APPLE__)
    f.dotprod = has("hw.optional.arm.FEAT_DotProd");
    f.fp16 = f.dotprod && has("hw.optional.arm.FEAT_FP16") && has("hw.optional.arm.FEAT_FHM");
    f.i8mm = f.fp16 && has("hw.optional.arm.FEAT_I8MM") && has("hw.optional.arm.FEAT_BF16");
#endif
    return f;
}

void cpu_name(char out[49]) {
    memset(out, 0, 49);
#if defined(__linux__)
    // this process may not read the ID registers
    if (!all_of(getauxval(AT_HWCAP), hwcap_cpuid)) return;
    uint64_t id = 0;
    __asm__ volatile("mrs %0, midr_el1" : "=r"(id));
    struct Part {
        uint32_t number;
        const char *name;
    };
    constexpr Part arm[] = {{0xd03, "Cortex-A53"},  {0xd05, "Cortex-A55"},  {0xd07, "Cortex-A57"},
                            {0xd08, "Cortex-A72"},  {0xd09, "Cortex-A73"},  {0xd0a, "Cortex-A75"},
                            {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse N1"}, {0xd0d, "Cortex-A77"},
                            {0xd40, "Neoverse V1"}, {0xd41, "Cortex-A78"},  {0xd44, "Cortex-X1"},
                            {0xd46, "Cortex-A510"}, {0xd47, "Cortex-A710"}, {0xd48, "Cortex-X2"},
                            {0xd49, "Neoverse N2"}, {0xd4d, "Cortex-A715"}, {0xd4e, "Cortex-X3"},
                            {0xd4f, "Neoverse V2"}, {0xd80, "Cortex-A520"}, {0xd81, "Cortex-A720"},
                            {0xd82, "Cortex-X4"}};
    const uint32_t maker = id >> 24 & 0xff, part = id >> 4 & 0xfff;
    for (const Part &p : arm)
        if (maker == 0x41 && part == p.number) {
            snprintf(out, 49, "%s", p.name);
            return;
        }
    snprintf(out, 49, "ARM64 processor, maker 0x%02x, part 0x%03x", maker, part);
#elif defined(__APPLE__)
    size_t bytes = 48;
    if (sysctlbyname("machdep.cpu.brand_string", out, &bytes, nullptr, 0) != 0) out[0] = 0;
#endif
}
#else
CpuFeatures cpu_features() { return {}; }
void cpu_name(char out[49]) { memset(out, 0, 49); }
#endif

bool isa_available(const CpuFeatures &f, Isa isa) {
    const bool there[isa_count] = {true,  f.avx2, f.avx512,  f.vnni, f.avx512bf16,
                                   f.amx, f.neon, f.dotprod, f.fp16, f.i8mm};
    return there[static_cast<uint32_t>(isa)];
}

Isa best_isa(const CpuFeatures &f) {
    Isa best = Isa::scalar;
    for (uint32_t i = 0; i < isa_count; ++i)
        if (isa_available(f, static_cast<Isa>(i)) &&
            (static_cast<Isa>(i) != Isa::avx512bf16 || f.bf16_gains))
            best = static_cast<Isa>(i);
    return best;
}

const char *available_isas(const CpuFeatures &f, char (&out)[isa_list_bytes]) {
    out[0] = 0;
    for (uint32_t i = 0; i < isa_count; ++i) {
        if (!isa_available(f, static_cast<Isa>(i))) continue;
        const size_t used = strlen(out);
        snprintf(out + used, isa_list_bytes - used, "%s%s", used == 0 ? "" : ", ",
                 isa_name(static_cast<Isa>(i)));
    }
    return out;
}

} // namespace keel_cpu
