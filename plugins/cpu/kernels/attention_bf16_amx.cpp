// Attention with AMX: two by two tiles of 16 x 16 sums, as in bf16_amx.cpp. Its processors multiply pairs of bf16 in vectors at half
// the rate of f32, so that few queries take tiles as well.
#define KEEL_CPU_AMX
#include "tile_products.hpp"

namespace keel_cpu::amx {
constexpr int64_t x_rows = 16;
} // namespace keel_cpu::amx

#include "generic/attention_bf16.inl"

namespace keel_cpu::amx {
namespace {

// One or two blocks of x with one or two panels, as configured.
template <int M, int N>
void multiply_tiles(const Bf16Product &t, int64_t row, int64_t column) {
    const uint16_t *x0 = t.x + row * t.x_depth, *x1 = x0 + x_rows * t.x_depth,
                   *w0 = t.w + column / 16 * t.panel_stride, *w1 = w0 + t.panel_stride;
    float *c0 = t.c + row * t.c_stride + column, *c1 = c0 + x_rows * t.c_stride;
    const int64_t stride = t.c_stride * 4;
    KEEL_TILES_FENCE();
    KEEL_BEGIN_SUMS(0, t.accumulate, c0, stride);
    if constexpr (N == 2) KEEL_BEGIN_SUMS(1, t.accumulate, c0 + 16, stride);
    if constexpr (M == 2) KEEL_BEGIN_SUMS(2, t.accumulate, c1, stride);
    if constexpr (M == 2 && N == 2) KEEL_BEGIN_SUMS(3, t.accumulate, c1 + 16, stride);
    add_tile_products<M, N>(x0, x1, w0, w1, t.depth / 32);
    KEEL_TILE_STORE(0, c0, stride);
    if constexpr (N == 2) KEEL_TILE_STORE(1, c0 + 16, stride);
    if constexpr (M == 2) KEEL_TILE_STORE(2, c1, stride);
    if constexpr (M == 2 && N == 2) KEEL_TILE_STORE(3, c1 + 16, stride);
    KEEL_TILES_FENCE();
}

template <int M>
void multiply_rows(const Bf16Product &t, int64_t row) {
    int64_t column = 0;
    for (; column + 32 <= t.columns; column += 32)
        multiply_tiles<M, 2>(t, row, column);
    if (column < t.columns) multiply_tiles<M, 1>(t, row, column);
}

void multiply(const Bf16Product &t) {
    for (int64_t row = 0; t.ahead.data != nullptr && row < t.ahead_rows; ++row)
        prefetch_row(t.ahead, row);
    int64_t row = 0;
    if (t.rows >= 32) configure_products(16, 16);
    for (; row + 32 <= t.rows; row += 32)
        multiply_rows<2>(t, row);
    if (t.rows - row > 16) {
        configure_products(16, t.rows - row - 16);
        multiply_rows<2>(t, row);
    } else if (row < t.rows) {
        configure_products(t.rows - row, 0);
        multiply_rows<1>(t, row);
    }
    tiles_release(); // the system need not save them when it switches threads
}

const Bf16AttentionKernels table = {
    .isa = isa_word,
    .least_rows = 3,
    .few_rows = 0,
    .x_rows = x_rows,
    .rows_at_once = 32,
    .pack_rows = pack_rows,
    .load_keys = {nullptr, load_keys<F16Row>, load_keys<Bf16Row>, load_keys<Q8Row>, load_keys<Q4Row>},
    .turn_keys = turn_keys,
    .load_values = {nullptr, load_values<F16Row>, load_values<Bf16Row>, load_values<Q8Row>,
                    load_values<Q4Row>},
    .multiply = multiply,
    .softmax = softmax16,
    .finite = finite16,
    .pack_few = nullptr,
    .dots_few = nullptr,
};

} // namespace
} // namespace keel_cpu::amx

namespace keel_cpu {
const Bf16AttentionKernels *bf16_attention_kernels_amx() {
    return &amx::table;
}
} // namespace keel_cpu
