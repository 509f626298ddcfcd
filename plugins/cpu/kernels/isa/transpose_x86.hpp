// Transposes eight rows of eight floats, to unpack row-major weights into panels. This file is
// compiled once for each instruction set, after its simd_*.hpp.
#include "cpu/kernels/tables.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

KEEL_SIMD void transpose8(const __m256 *row, float *out, int64_t stride) {
    __m256 t[8], u[8];
    for (int i = 0; i < 4; ++i) {
        t[2 * i] = _mm256_unpacklo_ps(row[2 * i], row[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(row[2 * i], row[2 * i + 1]);
    }
    for (int half = 0; half < 2; ++half) {
        const __m256 *s = t + 4 * half;
        u[4 * half + 0] = _mm256_shuffle_ps(s[0], s[2], 0x44);
        u[4 * half + 1] = _mm256_shuffle_ps(s[0], s[2], 0xee);
        u[4 * half + 2] = _mm256_shuffle_ps(s[1], s[3], 0x44);
        u[4 * half + 3] = _mm256_shuffle_ps(s[1], s[3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(out + i * stride, _mm256_permute2f128_ps(u[i], u[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * stride, _mm256_permute2f128_ps(u[i], u[i + 4], 0x31));
    }
}

// Writes columns i .. i + 7 of eight rows to out[column][row].
template <WeightType T>
KEEL_SIMD void unpack_square(const uint8_t *const *rows, int64_t i, float *out, int64_t stride) {
    __m256 v[8];
    for (int r = 0; r < 8; ++r) {
        if constexpr (T == WeightType::f32) {
            v[r] = _mm256_loadu_ps(reinterpret_cast<const float *>(rows[r] + 4 * i));
        } else {
            const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i *>(rows[r] + 2 * i));
            if constexpr (T == WeightType::f16)
                v[r] = _mm256_cvtph_ps(h);
            else
                v[r] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
        }
    }
    transpose8(v, out, stride);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
