// Dense attention, keel.attention_dense/1: forward and backward over plain tensors, after
// FlashAttention-2 (arXiv 2307.08691). Queries are handled in tiles of kDenseRows rows and keys in
// tiles of kDenseKeys. No array of size rows x keys is ever stored.
//
// Forward: a task is a tile of queries of one head. It walks over the tiles of keys that its
// queries see, with an online softmax.
//
// Backward: the weights are computed again from the stored log-sum-exp. A task for d_q is a tile of
// queries, and walks over keys. A task for d_k and d_v is a tile of keys of a KV head, and walks
// over the heads of its group and their queries. Each sum belongs to one task and is added up in a
// fixed order, so results do not depend on the number of threads.
//
// A pair of query and key that is hidden has bias -inf in a tile. So causal, window, mask and bias
// are one array. Products skip hidden pairs if the other operand is not finite, because
// 0 * NaN is NaN.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/tables.hpp"

#include <keel/ext/draft/attention_dense_check.hpp>

#include <atomic>

namespace keel_cpu {

constexpr int64_t kDenseRows = 96; // a multiple of kPad and of the six rows of a product
constexpr int64_t kDenseKeys = kTileSlots;
constexpr float kHidden = -__builtin_inff(); // bias of a hidden pair

// A tensor [batch, tokens, heads, dim]. Strides are in bytes.
struct DenseTensor {
    uint8_t *data = nullptr;
    int64_t batch = 0, token = 0, head = 0, dim = 0;
    int type = 0;     // RowType
    int64_t unit = 0; // bytes of an element

    DenseTensor() = default;
    explicit DenseTensor(const keel_tensor *t)
        : data(data_of(t)), batch(t->stride[0]), token(t->stride[1]), head(t->stride[2]),
          dim(t->shape[3]), type(row_type(t->dtype)), unit(keel_dtype_bytes(t->dtype)) {}
    uint8_t *row(int64_t b, int64_t i, int64_t h) const {
        return data + b * batch + i * token + h * head;
    }
};

// The bias or the mask: [batch, heads, rows, keys], where a size of 1 has stride 0.
struct DensePairs {
    const uint8_t *data = nullptr; // NULL: there is none
    int64_t batch = 0, head = 0, row = 0, unit = 0;
    int type = 0;

    DensePairs() = default;
    explicit DensePairs(const keel_tensor *t)
        : data(data_of(t)), batch(t->shape[0] == 1 ? 0 : t->stride[0]),
          head(t->shape[1] == 1 ? 0 : t->stride[1]), row(t->shape[2] == 1 ? 0 : t->stride[2]),
          unit(keel_dtype_bytes(t->dtype)), type(row_type(t->dtype)) {}
    const uint8_t *at(int64_t b, int64_t h, int64_t i, int64_t j) const {
        return data + b * batch + h * head + i * row + j * unit;
    }
};

// The function that both passes compute. The caller has checked the arguments.
struct DenseAttention {
    DenseAttention(const AttentionKernels *table, const keel_dense_attention &args,
                   const keel::sdk::DenseSizes &sizes);

    const AttentionKernels *kernels;
    const keel_dense_attention &args;
    keel::sdk::DenseSizes n;
    DenseTensor q, k, v;
    DensePairs bias, mask;
    const float *sink = nullptr;
    float cap = 0; // 0: no softcap
    bool drops = false;

    int64_t kv_head(int64_t h) const { return h / (n.heads / n.kv_heads); }
    int64_t tiles_of_rows() const { return (n.rows + kDenseRows - 1) / kDenseRows; }
    int64_t tiles_of_keys() const { return (n.keys + kDenseKeys - 1) / kDenseKeys; }
    // The keys that causal and window leave to query i: first..end-1. Both rise with i.
    Range keys_of(int64_t i) const;
    // The keys that one of the queries from..end-1 may see.
    Range keys_of(int64_t from, int64_t end) const {
        return {keys_of(from).begin, keys_of(end - 1).end};
    }
    bool has(uint64_t bit) const { return (args.features & bit) != 0; }
};

// A tile of pairs: queries `row`..+rows-1 and keys `key`..+keys-1 of a head.
struct DenseTile {
    int64_t b, h, row, rows, key, keys;
};

// Scratch memory of one worker, for both passes. Sizes in floats; d and e are the padded sizes of
// keys and values.
struct DenseScratch {
    DenseScratch(float *base, int64_t d, int64_t e);
    static int64_t floats(int64_t d, int64_t e);

    float *q, *q_turned;              // [kDenseRows][d], [d][kDenseRows]
    float *d_out, *d_out_turned;      // [kDenseRows][e], [e][kDenseRows]
    float *k, *v;                     // [kDenseKeys][d], [kDenseKeys][e]
    float *turned;                    // [max(d, e)][kDenseKeys]
    float *first, *second;            // sums: [kDenseRows][max(d, e)]
    float *s, *dp, *capped;           // tiles of pairs, in the orientation of the pass
    float *bias, *keep;               // tiles of pairs, [kDenseRows][kDenseKeys]
    float *bias_turned, *keep_turned; // [kDenseKeys][kDenseRows]
    float *max, *sum;                 // [kDenseRows]
    // What is subtracted from logits and from gradients of weights, one number for each pair. A
    // pass with keys as rows uses only one row, because all keys have the same numbers.
    float *lse, *delta;
};

// Rows of a matrix in f32.
struct DenseRowsOf {
    const float *data;
    int64_t stride;
};

// ---- parts of both passes (attention/dense_tiles.cpp) ----

// Rows from..from+count-1 of a head, as f32: in place if possible, else converted to `room`, with
// zeros after each row. whole: `room` is needed unless count is a multiple of kPad, because whole
// vectors of rows are read.
DenseRowsOf dense_rows(const DenseAttention &a, const DenseTensor &t, int64_t b, int64_t h,
                       int64_t from, int64_t count, bool whole, float *room);
// The same, converted to `room` and multiplied by `factor`.
void load_scaled(const DenseAttention &a, const DenseTensor &t, int64_t b, int64_t h, int64_t from,
                 int64_t count, float factor, float *room);
// Fills the tile `bias` with bias, and -inf for hidden pairs. Returns false if it would be all 0;
// then it is not filled.
bool fill_bias(const DenseAttention &a, const DenseTile &t, float *bias);
// Fills the tile `keep` with the factors of dropout: 0, or 1 / (1 - dropout).
void fill_keep(const DenseAttention &a, const DenseTile &t, float *keep);

// Which pairs of a product are skipped if the other operand is not finite. NULL: none.
struct DenseSkips {
    const float *bias, *keep;
};
// sums[rows][cols] += x[rows][depth] * y[depth][cols]. x, bias and keep are tiles of pairs with
// this stride.
void add_product(const DenseAttention &a, const float *x, int64_t stride, DenseSkips skips,
                 int64_t rows, int64_t depth, DenseRowsOf y, int64_t cols, float *sums);

// ---- the passes ----

keel_status run_dense_forward(keel_ctx *ctx, const DenseAttention &a,
                              const keel_dense_outputs &outputs) noexcept;
keel_status run_dense_backward(keel_ctx *ctx, const DenseAttention &a,
                               const keel_dense_gradients &gradients) noexcept;

// Workers for this work, whose products take `products` times rows * keys * head_dim additions.
uint32_t dense_workers(const keel_ctx *ctx, const DenseAttention &a, int64_t products);

} // namespace keel_cpu
