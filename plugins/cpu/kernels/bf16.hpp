// Kernels for many rows of x whose products are of bf16 and whose sums are f32: x is rounded and packed once per op; a block of W is
// unpacked into panels of bf16 that stay in the second cache while all rows of x go by. One table per instruction set that has such
// products; the few rows of decode are LinearKernels' work.
#pragma once

#include "cpu/kernels/linear.hpp"

namespace keel_cpu {

constexpr int64_t few_unit = 24;  // rows of W that matmul_half_bf16_few's ranges begin at multiples of
constexpr int64_t bf16_unit = 32; // rows of W that a call's range begins and is cut at

struct Bf16Kernels {
    const char *isa; // word compiled into the file that the kernels come from
    // Rows of x from which on these kernels are the faster ones, by type of W (f16 and bf16 row-major, others interleaved); 0: never.
    int64_t least_rows[weight_types];
    int64_t block; // rows of W in a call, at most
    int64_t
        x_rows; // rows of x that lie together: packed x is [m / x_rows][k / 32][x_rows][32], zeros behind a row's own columns
    int64_t rows_most;    // of x in a call, a multiple of x_rows
    int64_t worker_bytes; // of memory that a call needs, a multiple of 64

    // One row of `together` that lie together; `out` is the place of its first columns.
    void (*pack_x)(const float *x, int64_t k, int64_t together, uint16_t *out);
    // Rows n0..n1-1 of W with rows m0..m1-1 of x, m0 a multiple of x_rows; x points to the first block of all. memory: of the calling
    // worker, worker_bytes, aligned to 64.
    void (*matmul)(const MatmulTask &, const uint16_t *x, int64_t n0, int64_t n1, int64_t m0, int64_t m1,
                   uint8_t *memory);
    // The same for f16 and bf16 with m rows of x, few_rows at most, all of which lie together, without panels; 0 and NULL where panels are
    // the faster ones for any number.
    int64_t few_rows;
    void (*matmul_half_bf16_few)(const MatmulTask &, const uint16_t *x, int64_t n0, int64_t n1, int64_t m);
};

const Bf16Kernels *bf16_kernels_avx512();
const Bf16Kernels *bf16_kernels_amx();

// NULL where the instruction set has none (choose.cpp).
const Bf16Kernels *bf16_kernels(Isa isa);

} // namespace keel_cpu
