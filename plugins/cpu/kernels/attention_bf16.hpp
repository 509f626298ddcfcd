// Attention whose products are of bf16 and whose sums are f32 (`compute: fast`): a tile of keys and values is rounded once for all
// queries of a task. Both products have one form, [rows, depth] x [depth, columns]: queries with keys, probabilities with values. Left
// operands ("x") lie in blocks of x_rows rows of 32 columns, right ones ("panels") as [16 columns][depth / 2][16][2].
#pragma once

#include "cpu/kernels/attention.hpp"

namespace keel_cpu {

constexpr int64_t bf16_padded(int64_t n) { // depth of a product: whole steps of 32
    return (n + 31) / 32 * 32;
}

struct Bf16Product {
    const uint16_t *x;
    int64_t rows, x_depth; // a block of x_rows rows of x is x_rows * x_depth elements
    int64_t depth;         // so many columns of x are multiplied: a multiple of 32
    const uint16_t *w;
    int64_t panel_stride, columns; // of w: elements from panel to panel; columns are a multiple of 16
    float *c;                      // [rows, c_stride]
    int64_t c_stride;
    bool accumulate;
};

constexpr int64_t bf16_rows = 32; // rows_at_once is no more

// Whole tiles of slots in a row, all of which all rows see: logits, softmax and values of them.
struct Bf16Walk {
    const uint16_t *q;
    int64_t rows, head_dim, v_dim; // v_dim: a multiple of 16
    const uint16_t *keys, *values; // in panels: a tile's lie behind the tile's before
    int64_t tiles;
    SoftmaxState state; // acc is there
    float *lanes;
    float *s;        // room for bf16_rows rows of kTileSlots
    uint16_t *p;     // and for bf16_walk_tiles times so many, or where they are kept for all tiles
    float *kept_max; // [tiles][bf16_rows]: the max of a tile's time; NULL: p is not kept
};
constexpr int64_t bf16_walk_tiles = 2;

struct Bf16AttentionKernels {
    const char *isa; // word compiled into the file that the kernels come from
    int64_t
        least_rows;   // fewer query rows of a KV head: multiplied in f32, which reads the cache but once too
    int64_t few_rows; // up to so many of a KV head take dots_few; 0: it is NULL
    int64_t x_rows;   // rows of a block of x
    int64_t rows_at_once; // a multiple of it: logits and sums of so many rows stay in the first cache

    // `rows` rows of n elements to x; zeros behind n.
    void (*pack_rows)(const float *x, int64_t x_stride, int64_t rows, int64_t n, uint16_t *out);
    // n rows of a cache dtype, k_stride bytes apart, to [n][bf16_padded(dim)], zeros behind a row; NULL for a dtype that is not rounded.
    // Meanwhile as many rows are asked for of what is read later.
    void (*load_keys[kRowTypes])(const void *k, int64_t k_stride, int64_t n, int64_t dim, uint16_t *out,
                                 const Ahead &ahead);
    // Such rows to panels, one per 16 slots; n is a multiple of 16.
    void (*turn_keys)(const uint16_t *rows, int64_t n, int64_t dim, uint16_t *panels);
    // Slots first..first+n-1 of a tile of kTileSlots to panels of 16 elements of v, kTileSlots deep; first is even, and an odd n ends
    // the tile. Zeros behind dim and, where `last`, up to the next 32 slots.
    void (*load_values[kRowTypes])(const void *v, int64_t v_stride, int64_t first, int64_t n, int64_t dim,
                                   bool last, uint16_t *panels, const Ahead &ahead);
    // Products of at most rows_at_once rows, between a begin() with as many and an end().
    void (*begin)(int64_t rows);
    void (*multiply)(const Bf16Product &);
    void (*end)();
    // All of whole tiles at once; NULL where that gains nothing.
    void (*walk)(const Bf16Walk &);
    int64_t walk_rows; // from so many rows on
    // AttentionKernels::softmax with the result in p as x, kTileSlots deep, zeros up to the next 32 slots behind n. keep: in s too.
    // What it adds to the sums goes to lanes[rows][16] instead, and max need not be the largest logit: of those that came it is one
    // that none exceeds by so much that exp(logit - max) grew large.
    void (*softmax)(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state,
                    float *lanes, bool keep, uint16_t *p);
    void (*add_lanes)(const float *lanes, int64_t rows, float *sum);
    // sums[0..n) += by[i] * row (first + i * every) of a tile of p as softmax left it, for i < count; n is a multiple of 32.
    void (*add_columns)(const uint16_t *p, int64_t first, int64_t every, int64_t count, const float *by,
                        int64_t n, float *sums);
    bool (*finite)(const uint16_t *x, int64_t n);

    // few_rows: queries as pack_few leaves them, and rows of keys as load_keys does. n: up to the next multiple of 16 all is written
    // and read.
    void (*pack_few)(const float *q, int64_t q_stride, int64_t rows, int64_t dim, uint16_t *out);
    void (*dots_few)(const uint16_t *q, int64_t rows, const uint16_t *k, int64_t n, int64_t dim, float *s,
                     int64_t s_stride);
};

const Bf16AttentionKernels *bf16_attention_kernels_avx512();
const Bf16AttentionKernels *bf16_attention_kernels_amx();

// NULL where the instruction set has none, or none that gains (choose.cpp).
const Bf16AttentionKernels *bf16_attention_kernels(Isa isa);

} // namespace keel_cpu
