// The tiles of AMX in plain C++, for tests on machines without AMX. The tiles have the configured
// shapes, and bf16 products round like TDPBF16PS. The shipped plugin does not use this file.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace keel_cpu::tiles_emulated {

struct Tile {
    uint32_t rows, row_bytes; // 0: the tile is not configured
    uint8_t data[16][64];
};
struct Registers {
    Tile tile[8];
};

inline Registers &registers() {
    static thread_local Registers r = {};
    return r;
}

// Returns a tile. If the processor would raise an exception for this use, every sum becomes NaN, so
// that a test fails.
inline Tile &tile_of(int t) {
    Tile &tile = registers().tile[t];
    if (tile.rows == 0 || tile.row_bytes == 0) memset(tile.data, 0xff, sizeof tile.data);
    return tile;
}

// Configures the tiles. NULL releases them.
inline void configure(const void *config) {
    Registers &r = registers();
    memset(&r, 0, sizeof r); // loading a configuration clears all tiles
    if (config == nullptr) return;
    const uint8_t *bytes = static_cast<const uint8_t *>(config);
    for (int t = 0; t < 8 && bytes[0] == 1; ++t) {
        uint16_t row_bytes;
        memcpy(&row_bytes, bytes + 16 + 2 * t, 2);
        const uint8_t rows = bytes[48 + t];
        const bool whole = rows <= 16 && row_bytes <= 64 && (rows == 0) == (row_bytes == 0);
        r.tile[t].rows = whole ? rows : 0;
        r.tile[t].row_bytes = whole ? row_bytes : 0;
    }
}

inline void zero(int t) {
    Tile &tile = tile_of(t);
    memset(tile.data, 0, sizeof tile.data);
}

inline void load(int t, const void *p, int64_t stride) {
    Tile &tile = tile_of(t);
    if (tile.rows == 0) return;
    memset(tile.data, 0, sizeof tile.data);
    for (uint32_t r = 0; r < tile.rows; ++r)
        memcpy(tile.data[r], static_cast<const uint8_t *>(p) + r * stride, tile.row_bytes);
}

inline void store(int t, void *p, int64_t stride) {
    const Tile &tile = tile_of(t);
    for (uint32_t r = 0; r < tile.rows; ++r)
        memcpy(static_cast<uint8_t *>(p) + r * stride, tile.data[r], tile.row_bytes);
}

inline float without_denormals(float x) {
    return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x;
}
inline float bf16_value(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return without_denormals(f);
}

// Computes c += a * b. The even and the odd columns of a have separate sums. Adding a product
// rounds once, to nearest even. Subnormal inputs and results count as zero.
inline void dot_bf16(int c, int a, int b) {
    Tile &sums = tile_of(c);
    const Tile &left = tile_of(a), &right = tile_of(b);
    const bool fits = sums.rows == left.rows && left.row_bytes == 4 * right.rows &&
                      sums.row_bytes == right.row_bytes && sums.rows != 0;
    if (!fits) memset(sums.data, 0xff, sizeof sums.data);
    for (uint32_t m = 0; fits && m < sums.rows; ++m)
        for (uint32_t n = 0; n < sums.row_bytes / 4; ++n) {
            float apart[2] = {0, 0}, sum;
            for (uint32_t k = 0; k < right.rows; ++k)
                for (uint32_t odd = 0; odd < 2; ++odd)
                    apart[odd] = without_denormals(fmaf(bf16_value(left.data[m] + 4 * k + 2 * odd),
                                                        bf16_value(right.data[k] + 4 * n + 2 * odd),
                                                        apart[odd]));
            memcpy(&sum, sums.data[m] + 4 * n, 4);
            sum =
                without_denormals(without_denormals(sum) + without_denormals(apart[0] + apart[1]));
            memcpy(sums.data[m] + 4 * n, &sum, 4);
        }
}

} // namespace keel_cpu::tiles_emulated
