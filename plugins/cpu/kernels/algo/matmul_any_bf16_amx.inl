// bf16 products with AMX: two by two tiles of 16 x 16 sums. An instruction multiplies 16 rows of x
// by 16 rows of W over 32 columns. Weights of 4 and 8 bits are also unpacked to bf16. An
// instruction for 8-bit integers would multiply 64 columns. But the scales of these weights change
// every 32 columns, so integer sums would have to leave the tiles for scaling after every
// instruction. This costs more than the faster products save.
//
// The speed depends on the caches that hold the operands (docs/explain/amx.md). Two rows of blocks
// of x stay in the L1 cache, while the unpacked rows of W stream through it from the L2 cache. The
// sums of all rows of x stay in the L2 cache until the next range of `depth` columns.
#include "cpu/kernels/isa/tile_products.hpp"

namespace keel_cpu::amx {
constexpr int64_t x_rows = 16;
constexpr int64_t block_rows =
    256; // with `depth` columns, the unpacked rows and the sums take 0.75 of the 2 MiB of L2 cache
// two blocks of x with this many columns take 32 of the 48 KiB of L1 cache
constexpr int64_t depth = 512;
constexpr int64_t rows_most = 512; // most rows of x in a call
} // namespace keel_cpu::amx

#include "cpu/kernels/algo/pack_bf16.inl"

namespace keel_cpu::amx {

constexpr int64_t panels_bytes = 2 * block_rows * depth;
// number of sums in two by two tiles; the tiles are stored one after the other
constexpr int64_t square = 32 * 32;

// The part of a call that multiplies one range of columns.
struct Depth {
    int64_t n0, n1; // rows of W: n0..n1-1
    int64_t tiles; // number of tiles of 32 columns
    bool first, last;
    const uint16_t *panels;
};

// At most 32 rows of x, and the rows that are multiplied after them. During the products, the later
// rows are prefetched, a few cache lines at a time. Prefetching more lines at once would take the
// cache's line buffers, which the loads of unpacked weights need.
struct Rows {
    int64_t m, count;
    const uint16_t *x0, *x1; // two blocks of x, 16 rows each
    const uint16_t *next_x0, *next_x1;
    float *sums; // the sums of these rows
};

KEEL_SIMD void ask_for_lines(const uint16_t *x, int64_t lines) {
#if !defined(KEEL_CPU_EMULATED_AVX512)
    for (int64_t i = 0; i < lines;
         ++i) // prefetches to the L2 cache, because the L1 cache is full of operands
        _mm_prefetch(reinterpret_cast<const char *>(x + 32 * i), _MM_HINT_T1);
#else
    (void)x, (void)lines;
#endif
}

// Multiplies M blocks of x with N panels. The sums stay in tile registers. For every 32 columns,
// `lines` cache lines of each later block of x are prefetched.
template <int M, int N>
KEEL_SIMD void multiply_tiles(const Rows &rows, int64_t tiles, const uint16_t *w,
                              int64_t square_index, int64_t lines) {
    KEEL_TILE_ZERO(0);
    if constexpr (N == 2) KEEL_TILE_ZERO(1);
    if constexpr (M == 2) KEEL_TILE_ZERO(2);
    if constexpr (M == 2 && N == 2) KEEL_TILE_ZERO(3);
    const int64_t ahead = square_index * tiles;
    add_tile_products<M, N, true>(
        rows.x0, rows.x1, w, w + panel_stride,
        tiles, [&](int64_t i) __attribute__((always_inline)) {
            ask_for_lines(rows.next_x0 + (ahead + i) * lines * 32, lines);
            ask_for_lines(rows.next_x1 + (ahead + i) * lines * 32, lines);
        });
}

// Writes two by two tiles of complete sums to `out`. A sum is computed in parts, one for each range
// of `depth` columns. `added` is the last part. `waiting` is the sum of all earlier parts, or NULL
// if there are no earlier parts.
static void write_out(const MatmulTask &t, const Rows &rows, int64_t n, int64_t columns,
                      const float *waiting, const float *added) {
    for (int64_t r = 0; r < rows.count; ++r)
        for (int64_t c = 0; c < columns; c += 16) {
            const int64_t from = (r / 16 * 2 + c / 16) * 256 + r % 16 * 16,
                          count = columns - c < 16 ? columns - c : 16;
            float *out = out_at(t, rows.m + r, n + c);
            F sum = load(added + from);
            if (waiting != nullptr) sum = add(sum, load(waiting + from));
            if (t.bias != nullptr) sum = add(sum, load_n(t.bias + n + c, count));
            if (t.accumulate) sum = add(sum, load_n(out, count));
            if (t.pass_caches && count == 16 && reinterpret_cast<uintptr_t>(out) % 64 == 0)
                store_passing(out, sum);
            else
                store_n(out, sum, count);
        }
}

// The sums in the tile registers are first stored to memory. Then they are added to the sums of
// earlier ranges of columns. So the tiles begin with zeros and need not be loaded from memory.
template <int M, int N>
static void multiply(const MatmulTask &t, const Depth &d, const Rows &rows, int64_t square_index,
                     int64_t lines) {
    alignas(64) float copy[square];
    const int64_t n = d.n0 + 32 * square_index, columns = d.n1 - n < 32 ? d.n1 - n : 32;
    float *sums = rows.sums + square_index * square, *to = d.first && !d.last ? sums : copy;
    KEEL_TILES_FENCE();
    multiply_tiles<M, N>(rows, d.tiles, d.panels + 2 * square_index * panel_stride, square_index,
                         lines);
    KEEL_TILE_STORE(0, to, 64);
    if constexpr (N == 2) KEEL_TILE_STORE(1, to + 256, 64);
    if constexpr (M == 2) KEEL_TILE_STORE(2, to + 512, 64);
    if constexpr (M == 2 && N == 2) KEEL_TILE_STORE(3, to + 768, 64);
    KEEL_TILES_FENCE();
    if (d.last) return write_out(t, rows, n, columns, d.first ? nullptr : sums, copy);
    if (d.first) return;
    // If there is one panel, only every second tile was written.
    for (int64_t tile = 0; tile < 2 * M; tile += 3 - N)
        for (int64_t i = 256 * tile; i < 256 * (tile + 1); i += 16)
            store(sums + i, add(load(sums + i), load(copy + i)));
}

template <int M>
static void multiply_rows(const MatmulTask &t, const Depth &d, const Rows &rows) {
    const int64_t squares = (d.n1 - d.n0 + 31) / 32, lines = (16 + squares - 1) / squares;
    for (int64_t i = 0; i < squares; ++i)
        if (d.n1 - d.n0 - 32 * i > 16)
            multiply<M, 2>(t, d, rows, i, lines);
        else
            multiply<M, 1>(t, d, rows, i, lines);
}

static void multiply_depth(const MatmulTask &t, const Depth &d, const uint16_t *x,
                           const uint16_t *next_x, int64_t x_stride, int64_t m0, int64_t m1,
                           float *sums) {
    Rows rows = {m0, 0, x, nullptr, nullptr, nullptr, sums};
    for (; rows.m < m1; rows.m += 32, rows.x0 += 2 * x_stride) {
        rows.count = m1 - rows.m < 32 ? m1 - rows.m : 32;
        rows.x1 = rows.x0 + x_stride;
        rows.next_x0 = m1 - rows.m > 32 ? rows.x0 + 2 * x_stride : next_x;
        rows.next_x1 =
            m1 - rows.m > 48 || m1 - rows.m <= 32 ? rows.next_x0 + x_stride : rows.next_x0;
        if (rows.count == 32) {
            if (rows.m == m0) configure_products(16, 16);
            multiply_rows<2>(t, d, rows);
        } else if (rows.count > 16) {
            configure_products(16, rows.count - 16);
            multiply_rows<2>(t, d, rows);
        } else {
            configure_products(rows.count, 0);
            multiply_rows<1>(t, d, rows);
        }
        rows.sums += (d.n1 - d.n0 + 31) / 32 * square;
    }
}

static void matmul_any_bf16(const MatmulTask &t, const uint16_t *x, int64_t n0, int64_t n1,
                            int64_t m0, int64_t m1, uint8_t *memory) {
    uint16_t *panels = reinterpret_cast<uint16_t *>(memory);
    float *sums = reinterpret_cast<float *>(memory + panels_bytes);
    const int64_t cols = t.w.cols, x_stride = (cols + 31) / 32 * 32 * x_rows;
    const uint16_t *first_x = x + m0 / x_rows * x_stride;
    int64_t k0 = 0;
    do { // runs once even if there are no columns, because bias and zeros must be written
        const int64_t k = cols - k0 < depth ? cols - k0 : depth;
        for (int64_t n = n0; n < n1; n += 16)
            pack_panel(t, n, n1 - n < 16 ? n1 - n : 16, k0, k,
                       panels + (n - n0) / 16 * panel_stride);
        const Depth d = {n0, n1, (k + 31) / 32, k0 == 0, k0 + k >= cols, panels};
        const uint16_t *next_x = first_x + (d.last ? 0 : (k0 + k) * x_rows);
        multiply_depth(t, d, first_x + k0 * x_rows, next_x, x_stride, m0, m1, sums);
        k0 += k;
    } while (k0 < cols);
    tiles_release(); // released tiles need not be saved on a thread switch
    if (t.pass_caches) finish_passing();
}

static const Bf16MatmulKernels table = {
    .isa = isa_word,
    .least_rows = {0, 9, 9, 20, 20, 20, 20, 20},
    .block = block_rows,
    .x_rows = x_rows,
    .rows_most = rows_most,
    .worker_bytes = panels_bytes + rows_most * block_rows * 4,
    .pack_x = pack_x,
    .matmul_any_bf16 = matmul_any_bf16,
    .few_rows = 0,
    .matmul_half_bf16_few = nullptr,
};

} // namespace keel_cpu::amx
