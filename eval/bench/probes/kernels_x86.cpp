// Each function is compiled for one instruction set. The rest of the file is compiled for the
// baseline. Call a function only after a check that the processor supports the function's
// instruction set.
#include "eval/bench/probes/kernels.hpp"

#include <immintrin.h>

namespace keel {
namespace {

constexpr int avx2_chains = 12, avx512_chains = 16;

template <bool prefetch>
__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte *at, size_t bytes) {
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < bytes; i += 64) {
        if (prefetch)
            _mm_prefetch(reinterpret_cast<const char *>(at + i + probe_prefetch_distance),
                         _MM_HINT_T0);
        const auto *line = reinterpret_cast<const __m256i *>(at + i);
        a = _mm256_xor_si256(a, _mm256_load_si256(line));
        b = _mm256_xor_si256(b, _mm256_load_si256(line + 1));
    }
    alignas(32) uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i *>(lanes), _mm256_xor_si256(a, b));
    return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
}

__attribute__((target("avx2,fma"))) float multiply_add_avx2(uint64_t rounds) {
    __m256 acc[avx2_chains];
    for (int i = 0; i < avx2_chains; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
    const __m256 factor = _mm256_set1_ps(0.999F), addend = _mm256_set1_ps(0.001F);
    for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int i = 0; i < avx2_chains; ++i) acc[i] = _mm256_fmadd_ps(acc[i], factor, addend);
    }
    __m256 all = acc[0];
    for (int i = 1; i < avx2_chains; ++i) all = _mm256_add_ps(all, acc[i]);
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, all);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
}

template <bool prefetch>
__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte *at, size_t bytes) {
    __m512i a = _mm512_setzero_si512(), b = a;
    for (size_t i = 0; i < bytes; i += 128) {
        if (prefetch) {
            _mm_prefetch(reinterpret_cast<const char *>(at + i + probe_prefetch_distance),
                         _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char *>(at + i + 64 + probe_prefetch_distance),
                         _MM_HINT_T0);
        }
        a = _mm512_xor_si512(a, _mm512_load_si512(at + i));
        b = _mm512_xor_si512(b, _mm512_load_si512(at + i + 64));
    }
    alignas(64) uint64_t lanes[8];
    _mm512_store_si512(lanes, _mm512_xor_si512(a, b));
    return lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ lanes[4] ^ lanes[5] ^ lanes[6] ^ lanes[7];
}

__attribute__((target("avx512f"))) float multiply_add_avx512(uint64_t rounds) {
    __m512 acc[avx512_chains];
    for (int i = 0; i < avx512_chains; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
    const __m512 factor = _mm512_set1_ps(0.999F), addend = _mm512_set1_ps(0.001F);
    for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
        for (int i = 0; i < avx512_chains; ++i) acc[i] = _mm512_fmadd_ps(acc[i], factor, addend);
    }
    __m512 all = acc[0];
    for (int i = 1; i < avx512_chains; ++i) all = _mm512_add_ps(all, acc[i]);
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, all);
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum;
}

constexpr ProbeKernels avx2 = {"avx2", read_avx2<false>, read_avx2<true>, multiply_add_avx2,
                               uint64_t{avx2_chains} * 8 * 2};
constexpr ProbeKernels avx512 = {"avx512", read_avx512<false>, read_avx512<true>,
                                 multiply_add_avx512, uint64_t{avx512_chains} * 16 * 2};

} // namespace

const ProbeKernels &best_probe_kernels() {
    // The builtin also checks that the operating system saves these registers.
    if (__builtin_cpu_supports("avx512f")) return avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2;
    return baseline_probe_kernels();
}

} // namespace keel
