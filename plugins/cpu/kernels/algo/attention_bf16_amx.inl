// Attention with AMX. Each step computes two by two tiles of 16 x 16 sums, as in
// matmul_any_bf16_amx.inl. Processors with AMX multiply bf16 pairs in vectors at half the rate of
// f32. So tiles are used for few queries as well.
#include "cpu/kernels/isa/tile_products.hpp"

namespace keel_cpu::amx {
constexpr int64_t x_rows = 16;
} // namespace keel_cpu::amx

#include "cpu/kernels/algo/attention_bf16.inl"

namespace keel_cpu::amx {
namespace {

// Multiplies M blocks of x with N panels, in the tiles that configure_products() has configured.
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

void begin(int64_t rows) {
    if (rows > 16)
        configure_products(16, rows - 16);
    else
        configure_products(rows, 0);
}

void multiply(const Bf16Product &t) {
    if (t.rows > 16)
        multiply_rows<2>(t, 0);
    else
        multiply_rows<1>(t, 0);
}

void end() {
    tiles_release(); // released tiles need not be saved on a thread switch
}

// ---- whole tiles ----

// Number of elements in a tile of logits or probabilities. bf16_rows is rows_at_once.
constexpr int64_t tile_p = bf16_rows * kTileSlots;

// Multiplies the values of `tiles` tiles of slots by the probabilities in p, and adds the result to
// N panels of sums.
template <int N>
void add_values(const Bf16Walk &t, const uint16_t *p, const uint16_t *values, int64_t tiles,
                int64_t column) {
    constexpr int64_t panel = 16 * kTileSlots, block = x_rows * kTileSlots;
    const int64_t stride = t.state.acc_stride * 4;
    float *c0 = t.state.acc + column, *c1 = c0 + x_rows * t.state.acc_stride;
    KEEL_TILES_FENCE();
    KEEL_TILE_LOAD(0, c0, stride);
    if constexpr (N == 2) KEEL_TILE_LOAD(1, c0 + 16, stride);
    KEEL_TILE_LOAD(2, c1, stride);
    if constexpr (N == 2) KEEL_TILE_LOAD(3, c1 + 16, stride);
    const uint16_t *x = p, *w = values + column / 16 * panel;
    for (int64_t tile = 0; tile < tiles; ++tile, x += tile_p, w += kTileSlots * t.v_dim)
        add_tile_products<2, N>(x, x + block, w, w + panel, kTileSlots / 32);
    KEEL_TILE_STORE(0, c0, stride);
    if constexpr (N == 2) KEEL_TILE_STORE(1, c0 + 16, stride);
    KEEL_TILE_STORE(2, c1, stride);
    if constexpr (N == 2) KEEL_TILE_STORE(3, c1 + 16, stride);
    KEEL_TILES_FENCE();
}

// Products and softmax alternate. The instruction TDPBF16PS uses one of the two ports for 512-bit
// vectors, so running both at the same time gains nothing. Storing a tile register takes as long as
// a product. So the sums of values are stored and loaded only once for several tiles of slots. If
// more than two tiles of slots are processed together, the probabilities leave the L1 cache before
// they are multiplied with values.
void walk(const Bf16Walk &t) {
    const int64_t depth = bf16_padded(t.head_dim);
    for (int64_t from = 0; from < t.tiles; from += bf16_walk_tiles) {
        const int64_t n = t.tiles - from < bf16_walk_tiles ? t.tiles - from : bf16_walk_tiles;
        uint16_t *p = t.kept_max != nullptr ? t.p + from * tile_p : t.p;
        for (int64_t i = 0; i < n; ++i) {
            multiply({t.q, t.rows, depth, depth, t.keys + (from + i) * kTileSlots * depth,
                      16 * depth, kTileSlots, t.s, kTileSlots, false});
            softmax_rows<false>(t.s, kTileSlots, 0, t.rows, kTileSlots, t.state, t.lanes,
                                p + i * tile_p, i);
        }
        for (int64_t i = 0; t.kept_max != nullptr && i < n;
             // The last max is valid for all of these tiles, because their probabilities were
             // rescaled when the max rose.
             ++i)
            memcpy(t.kept_max + (from + i) * bf16_rows, t.state.max,
                   static_cast<size_t>(t.rows) * 4);
        const uint16_t *values = t.values + from * kTileSlots * t.v_dim;
        int64_t column = 0;
        for (; column + 32 <= t.v_dim; column += 32)
            add_values<2>(t, p, values, n, column);
        if (column < t.v_dim) add_values<1>(t, p, values, n, column);
    }
}

const Bf16AttentionKernels table = {
    .isa = isa_word,
    .least_rows = 5,
    .few_rows = 0,
    .x_rows = x_rows,
    .rows_at_once = bf16_rows,
    .pack_rows = pack_rows,
    .load_keys = {nullptr, load_keys<F16Row>, load_keys<Bf16Row>, load_keys<Q8Row>,
                  load_keys<Q4Row>},
    .turn_keys = turn_keys,
    .load_values = {nullptr, load_values<F16Row>, load_values<Bf16Row>, load_values<Q8Row>,
                    load_values<Q4Row>},
    .begin = begin,
    .multiply = multiply,
    .end = end,
    .walk = walk,
    .walk_rows = 17, // two blocks of x
    .softmax = softmax16<false>,
    .softmax_fine = softmax16<true>,
    .add_lanes = add_lanes,
    .add_columns = add_columns,
    .finite = finite16,
    .pack_few = nullptr,
    .dots_few = nullptr,
};

} // namespace
} // namespace keel_cpu::amx
