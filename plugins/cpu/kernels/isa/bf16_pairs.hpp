// Rounds numbers to bf16 and packs rows into pairs of columns, for algo/matmul_any_bf16.inl. The
// file uses the conversions of AVX512_BF16; the emulated test build uses plain loops. A tile is 32
// columns of 16 rows of W in the order that the products need: [16 pairs of columns][16 rows][2].
#pragma once

#include "cpu/kernels/isa/int8_avx512.hpp"
#include "cpu/kernels/tables.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

constexpr int64_t tile_elements = 16 * 32;

#if defined(KEEL_CPU_EMULATED_AVX512)

// Stores 32 neighbouring elements of a row of x as bf16.
KEEL_SIMD void store_row(uint16_t *out, F low, F high) {
    float v[32];
    store(v, low), store(v + 16, high);
    for (int i = 0; i < 32; ++i) out[i] = f32_to_bf16(v[i]);
}
// Stores one pair of columns of 16 rows as bf16.
KEEL_SIMD void store_pairs(uint16_t *out, F even, F odd) {
    float a[16], b[16];
    store(a, even), store(b, odd);
    for (int i = 0; i < 16; ++i) out[2 * i] = f32_to_bf16(a[i]), out[2 * i + 1] = f32_to_bf16(b[i]);
}
// Returns the 4-bit code that begins at bit `bit` of each lane, minus 8.
KEEL_SIMD F nibble_at(I x, int bit) { return extract_nibble_f32(x, bit / 8, bit % 8 / 4); }
// Packs 32 columns of 16 rows of f16 or bf16 into a tile.
template <WeightType T>
KEEL_SIMD void pack_tile(const uint8_t *const *rows, int64_t offset, uint16_t *out) {
    for (int r = 0; r < 16; ++r)
        for (int i = 0; i < 32; ++i) {
            uint16_t h;
            memcpy(&h, rows[r] + offset + 2 * i, 2);
            out[i / 2 * 32 + 2 * r + i % 2] =
                T == WeightType::bf16 ? h : f32_to_bf16(f16_to_f32(h));
        }
}

KEEL_SIMD void store_passing(float *p, F x) { store(p, x); }
KEEL_SIMD void finish_passing() {}

#else

// store_passing() stores sixteen floats to memory without filling the caches. The address is a
// multiple of 64. Call finish_passing() before another thread reads the floats.
KEEL_SIMD void store_passing(float *p, F x) { _mm512_stream_ps(p, x); }
KEEL_SIMD void finish_passing() { _mm_sfence(); }

KEEL_SIMD I to_bf16(F low, F high) { // low becomes words 0..15 of the result, high words 16..31
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}
KEEL_SIMD void store_row(uint16_t *out, F low, F high) {
    _mm512_storeu_si512(out, to_bf16(low, high));
}
KEEL_SIMD void store_pairs(uint16_t *out, F even, F odd) {
    const I turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                    23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(turn, to_bf16(even, odd)));
}
// permutexvar uses only the lowest four bits of a lane, so no mask is needed.
KEEL_SIMD F nibble_at(I x, int bit) {
    const F values = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(x, static_cast<unsigned>(bit)), values);
}

template <WeightType T> KEEL_SIMD I load_row32(const uint8_t *p) {
    if constexpr (T == WeightType::bf16) return _mm512_loadu_si512(p);
    return to_bf16(load_f16(reinterpret_cast<const uint16_t *>(p)),
                   load_f16(reinterpret_cast<const uint16_t *>(p) + 16));
}
// Packs a tile: transposes sixteen rows of sixteen pairs of columns.
template <WeightType T>
KEEL_SIMD void pack_tile(const uint8_t *const *rows, int64_t offset, uint16_t *out) {
    I a[16], b[16];
    KEEL_UNROLL
    for (int i = 0; i < 16; ++i) a[i] = load_row32<T>(rows[i] + offset);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
            a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
        }
    // The 128-bit lane L of a[4 i + j] holds column 4 L + j of rows 4 i .. 4 i + 3.
    for (int j = 0; j < 4; ++j) {
        const I even_a = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88),
                odd_a = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd),
                even_b = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88),
                odd_b = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
        _mm512_storeu_si512(out + j * 32, _mm512_shuffle_i32x4(even_a, even_b, 0x88));
        _mm512_storeu_si512(out + (4 + j) * 32, _mm512_shuffle_i32x4(odd_a, odd_b, 0x88));
        _mm512_storeu_si512(out + (8 + j) * 32, _mm512_shuffle_i32x4(even_a, even_b, 0xdd));
        _mm512_storeu_si512(out + (12 + j) * 32, _mm512_shuffle_i32x4(odd_a, odd_b, 0xdd));
    }
}

#endif

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
