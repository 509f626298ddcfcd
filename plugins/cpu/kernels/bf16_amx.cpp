// AMX: two by two tiles of 16 x 16 sums. An instruction multiplies 16 rows of x by 16 rows of W over 32 columns. Weights of 4 and of 8
// bits are unpacked to bf16 as well: their scales change every 32 columns, half of what a tile of bytes multiplies at once, so integer
// sums would have to leave the tiles and be scaled after every instruction, which costs more than the faster products save.
#define KEEL_CPU_AMX
#include "tile_products.hpp"

namespace keel_cpu::amx {
constexpr int64_t x_rows = 16;
constexpr int64_t block_rows = 256;
constexpr int64_t depth = 512; // two blocks of x stay in the first cache
} // namespace keel_cpu::amx

#include "generic/matmul_bf16.inl"

namespace keel_cpu::amx {

// The place of a tile of sums: out itself, or a copy where out has no 16 columns or the sums begin with something else.
struct Sums {
    float *at;
    int64_t stride;   // bytes
    bool from_memory; // else from zero
    float copy[16][16];
};

static void begin_sums(const MatmulTask &t, const Slab &slab, int64_t m, int64_t rows, int64_t n,
                       int64_t count, Sums &s) {
    s.from_memory = !slab.first || t.accumulate || t.bias != nullptr;
    s.at = out_at(t, m, n);
    s.stride = t.out_stride;
    if (count == 16 && !(slab.first && t.bias != nullptr)) return;
    for (int64_t r = 0; r < rows; ++r)
        store(s.copy[r], start_of(t, slab, m + r, n, count));
    s.at = s.copy[0];
    s.stride = 64;
}

static void end_sums(const MatmulTask &t, int64_t m, int64_t rows, int64_t n, int64_t count, const Sums &s) {
    if (s.at != s.copy[0]) return;
    for (int64_t r = 0; r < rows; ++r)
        store_n(out_at(t, m + r, n), load(s.copy[r]), count);
}

// One or two blocks of x with one or two panels, as configured.
template <int M, int N>
static void multiply(const MatmulTask &t, const Slab &slab, int64_t n, int64_t n1, int64_t m, int64_t m1,
                     const uint16_t *w0) {
    const uint16_t *w1 = w0 + panel_stride, *x0 = slab.x + m / x_rows * slab.x_stride,
                   *x1 = x0 + slab.x_stride;
    Sums sums[M][N];
    const auto rows = [&](int i) { return m1 - m - 16 * i < 16 ? m1 - m - 16 * i : 16; };
    const auto columns = [&](int j) { return n1 - n - 16 * j < 16 ? n1 - n - 16 * j : 16; };
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j)
            begin_sums(t, slab, m + 16 * i, rows(i), n + 16 * j, columns(j), sums[i][j]);
    KEEL_TILES_FENCE();
    KEEL_BEGIN_SUMS(0, sums[0][0].from_memory, sums[0][0].at, sums[0][0].stride);
    if constexpr (N == 2) KEEL_BEGIN_SUMS(1, sums[0][1].from_memory, sums[0][1].at, sums[0][1].stride);
    if constexpr (M == 2) KEEL_BEGIN_SUMS(2, sums[1][0].from_memory, sums[1][0].at, sums[1][0].stride);
    if constexpr (M == 2 && N == 2)
        KEEL_BEGIN_SUMS(3, sums[1][1].from_memory, sums[1][1].at, sums[1][1].stride);
    add_tile_products<M, N>(x0, x1, w0, w1, slab.tiles);
    KEEL_TILE_STORE(0, sums[0][0].at, sums[0][0].stride);
    if constexpr (N == 2) KEEL_TILE_STORE(1, sums[0][N - 1].at, sums[0][N - 1].stride);
    if constexpr (M == 2) KEEL_TILE_STORE(2, sums[M - 1][0].at, sums[M - 1][0].stride);
    if constexpr (M == 2 && N == 2) KEEL_TILE_STORE(3, sums[1][1].at, sums[1][1].stride);
    KEEL_TILES_FENCE();
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j)
            end_sums(t, m + 16 * i, rows(i), n + 16 * j, columns(j), sums[i][j]);
}

template <int M>
static void multiply_rows(const MatmulTask &t, const Slab &slab, int64_t n0, int64_t n1, int64_t m,
                          int64_t m1, const uint16_t *panels) {
    int64_t n = n0;
    for (; n + 16 < n1; n += 32, panels += 2 * panel_stride)
        multiply<M, 2>(t, slab, n, n1, m, m1, panels);
    if (n < n1) multiply<M, 1>(t, slab, n, n1, m, m1, panels);
}

static void multiply_block(const MatmulTask &t, const Slab &slab, int64_t n0, int64_t n1, int64_t m0,
                           int64_t m1, const uint16_t *panels) {
    int64_t m = m0;
    if (m + 32 <= m1) configure_products(16, 16);
    for (; m + 32 <= m1; m += 32) // a slab of these rows stays in the first cache
        multiply_rows<2>(t, slab, n0, n1, m, m1, panels);
    if (m1 - m > 16) {
        configure_products(16, m1 - m - 16);
        multiply_rows<2>(t, slab, n0, n1, m, m1, panels);
    } else if (m < m1) {
        configure_products(m1 - m, 0);
        multiply_rows<1>(t, slab, n0, n1, m, m1, panels);
    }
    tiles_release(); // the system need not save them when it switches threads
}

static const Bf16Kernels table = {
    .isa = isa_word,
    .least_rows = {0, 5, 5, 16, 16, 16, 16, 16},
    .block = block_rows,
    .x_rows = x_rows,
    .pack_x = pack_x,
    .matmul = matmul_bf16,
    .few_rows = 0,
    .matmul_few = nullptr,
};

} // namespace keel_cpu::amx

namespace keel_cpu {
const Bf16Kernels *bf16_kernels_amx() {
    return &amx::table;
}
} // namespace keel_cpu
