// Products in two by two AMX tiles, which matmul and attention share: one or two blocks of 16 rows
// of x with one or two panels of 16 columns. An instruction multiplies over a depth of 32. Tiles 0
// to 3 hold the sums, in the order [block of x][panel]. Tiles 4 and 5 hold x. Tiles 6 and 7 hold
// panels.
#pragma once

#include "cpu/kernels/isa/bf16_pairs.hpp"
#include "cpu/kernels/isa/tiles.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Configures the tiles. rows_0 and rows_1 are the rows of the two blocks of x, at most 16. rows_1
// is 0 if there is no second block.
static inline void configure_products(int64_t rows_0, int64_t rows_1) {
    TileConfig config = {};
    config.palette = 1;
    const auto shape = [&config](int t, int64_t rows) {
        config.rows[t] = static_cast<uint8_t>(rows);
        config.row_bytes[t] = rows == 0 ? 0 : 64;
    };
    shape(0, rows_0), shape(1, rows_0), shape(4, rows_0);
    shape(2, rows_1), shape(3, rows_1), shape(5, rows_1);
    shape(6, 16), shape(7, 16);
    tiles_configure(config);
}

// Loads the start values of a tile of sums. If from_memory is true, they come from the memory at
// `at`, whose rows are `stride` bytes apart. Otherwise they are zeros.
#define KEEL_BEGIN_SUMS(tile, from_memory, at, stride)                                             \
    do {                                                                                           \
        if (from_memory)                                                                           \
            KEEL_TILE_LOAD(tile, at, stride);                                                      \
        else                                                                                       \
            KEEL_TILE_ZERO(tile);                                                                  \
    } while (false)

// Multiplies M blocks of x with N panels and adds the products to the sums in the tiles. The
// products use 32 * n columns. Set `Passing` to true if the panels come from the L2 cache and x
// should stay in the L1 cache. The function calls meanwhile(i) for each i < n, during the products
// of columns 32 i to 32 i + 31.
template <int M, int N, bool Passing, class Meanwhile>
KEEL_SIMD void add_tile_products(const uint16_t *x0, const uint16_t *x1, const uint16_t *w0,
                                 const uint16_t *w1, int64_t n, const Meanwhile &meanwhile) {
    for (int64_t i = 0, at = 0; i < n; ++i, at += tile_elements) {
        meanwhile(i);
        if constexpr (Passing)
            KEEL_TILE_LOAD_PASSING(6, w0 + at, 64);
        else
            KEEL_TILE_LOAD(6, w0 + at, 64);
        KEEL_TILE_LOAD(4, x0 + at, 64);
        KEEL_TILE_DOT_BF16(0, 4, 6);
        if constexpr (N == 2) {
            if constexpr (Passing)
                KEEL_TILE_LOAD_PASSING(7, w1 + at, 64);
            else
                KEEL_TILE_LOAD(7, w1 + at, 64);
            KEEL_TILE_DOT_BF16(1, 4, 7);
        }
        if constexpr (M == 2) {
            KEEL_TILE_LOAD(5, x1 + at, 64);
            KEEL_TILE_DOT_BF16(2, 5, 6);
        }
        if constexpr (M == 2 && N == 2) KEEL_TILE_DOT_BF16(3, 5, 7);
    }
}

template <int M, int N>
KEEL_SIMD void add_tile_products(const uint16_t *x0, const uint16_t *x1, const uint16_t *w0,
                                 const uint16_t *w1, int64_t n) {
    add_tile_products<M, N, false>(x0, x1, w0, w1, n, [](int64_t) __attribute__((always_inline)){});
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
