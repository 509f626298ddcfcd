// bf16 products with AVX512_BF16. The sums stay in registers. Each vector has one pair of columns
// of 16 rows of W.
#include "cpu/kernels/isa/bf16_pairs.hpp"

namespace keel_cpu::avx512bf16 {
// With two vectors of rows of W, twelve rows give 24 independent sums. Three registers are left for
// operands.
constexpr int64_t x_rows = 12;
// A small number, so that the last tasks of an op end at about the same time.
constexpr int64_t block_rows = 64;
// a large number, because each range of columns reads and writes `out` once
constexpr int64_t depth = 1024;
} // namespace keel_cpu::avx512bf16

#if defined(__clang__)
#define KEEL_WHOLE _Pragma("clang loop unroll(full)")
#else
// Without unrolling, GCC would store and load each sum in memory.
#define KEEL_WHOLE _Pragma("GCC unroll 16")
#endif

#include "cpu/kernels/algo/matmul_any_bf16.inl"

#include "cpu/kernels/algo/matmul_half_bf16_few.inl"

namespace keel_cpu::avx512bf16 {

KEEL_SIMD F dot_pairs(F sum, const uint16_t *x, I w) {
    int32_t pair;
    memcpy(&pair, x, 4);
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)w);
}

// Adds the products of one range of columns to the sums, for M rows of x and P panels.
template <int M, int P>
static void multiply(const MatmulTask &t, const Slab &slab, int64_t n, int64_t n1, int64_t m,
                     const uint16_t *w) {
    F sum[M][P];
    KEEL_WHOLE
    for (int i = 0; i < M; ++i)
        KEEL_WHOLE
    for (int p = 0; p < P; ++p)
        sum[i][p] = zero();
    const bool from_zero = slab.first && !t.accumulate && t.bias == nullptr;
    // Rows of `out` are far apart in memory, so they are prefetched during the products.
    if (!from_zero)
        for (int i = 0; i < M; ++i)
            for (int p = 0; p < P; ++p)
                prefetch(out_at(t, m + i, n + 16 * p));
    const uint16_t *x = slab.x + m / x_rows * slab.x_stride;
    for (int64_t k = 0; k < slab.tiles; ++k, x += x_rows * 32)
        for (int pair = 0; pair < 16; ++pair, w += 32) {
            I v[P];
            KEEL_WHOLE
            for (int p = 0; p < P; ++p)
                v[p] = _mm512_loadu_si512(w + p * panel_stride);
            KEEL_WHOLE
            for (int i = 0; i < M; ++i)
                KEEL_WHOLE
            for (int p = 0; p < P; ++p)
                sum[i][p] = dot_pairs(sum[i][p], x + i * 32 + 2 * pair, v[p]);
        }
    if (n + 16 * P <= n1 && !(slab.first && t.bias != nullptr)) {
        KEEL_WHOLE
        for (int i = 0; i < M; ++i) {
            float *out = out_at(t, m + i, n);
            KEEL_WHOLE
            for (int p = 0; p < P; ++p)
                store(out + 16 * p, from_zero ? sum[i][p] : add(load(out + 16 * p), sum[i][p]));
        }
        return;
    }
    // this copy is indexed at run time, so that the sums themselves can stay in registers
    F copy[M][P];
    KEEL_WHOLE
    for (int i = 0; i < M; ++i)
        KEEL_WHOLE
    for (int p = 0; p < P; ++p)
        copy[i][p] = sum[i][p];
    __asm__ volatile("" ::"r"(copy) : "memory");
    for (int i = 0; i < M; ++i)
        for (int p = 0; p < P; ++p) {
            const int64_t at = n + 16 * p, count = n1 - at < 16 ? n1 - at : 16;
            store_n(out_at(t, m + i, at), add(start_of(t, slab, m + i, at, count), copy[i][p]),
                    count);
        }
}

template <int M>
static void multiply_rows(const MatmulTask &t, const Slab &slab, int64_t n0, int64_t n1, int64_t m,
                          int64_t rows, const uint16_t *panels) {
    if constexpr (M > 0) {
        if (rows != M) return multiply_rows<M - 1>(t, slab, n0, n1, m, rows, panels);
        int64_t n = n0;
        for (; n + 16 < n1; n += 32, panels += 2 * panel_stride)
            multiply<M, 2>(t, slab, n, n1, m, panels);
        if (n < n1) multiply<M, 1>(t, slab, n, n1, m, panels);
    }
}

static void multiply_block(const MatmulTask &t, const Slab &slab, int64_t n0, int64_t n1,
                           int64_t m0, int64_t m1, const uint16_t *panels) {
    for (int64_t m = m0; m < m1; m += x_rows) // these x_rows rows of x stay in the L1 cache
        multiply_rows<x_rows>(t, slab, n0, n1, m, m1 - m < x_rows ? m1 - m : x_rows, panels);
}

static const Bf16MatmulKernels table = {
    .isa = isa_word,
    // 0 for q8_0 and q4_0: VNNI multiplies bytes faster than these kernels can unpack them.
    .least_rows = {0, 3, 3, 0, 0},
    .block = block_rows,
    .x_rows = x_rows,
    .rows_most = 768,
    .worker_bytes = 2 * block_rows * depth,
    .pack_x = pack_x,
    .matmul_any_bf16 = matmul_any_bf16,
    .few_rows = few_rows,
    .matmul_half_bf16_few = matmul_half_bf16_few,
};

} // namespace keel_cpu::avx512bf16
