// Dense attention, keel.attention_dense/1: forward and backward over plain tensors, after
// FlashAttention-2 (arXiv 2307.08691). Keys are handled in tiles of kDenseKeys keys. No array of
// size rows x keys is ever stored.
//
// Forward: a task is a block of queries of one head. It walks over the tiles of keys that its
// queries see, with an online softmax.
//
// Backward: the weights are computed again from the stored log-sum-exp. A task is a group of key
// tiles of a KV head. For each tile it walks over the heads of the KV head and their queries. It
// adds up d_k and d_v of its keys, and its part of d_q. At the end the parts of d_q are added up.
// Each sum is added up in a fixed order, so results do not depend on the number of threads.
//
// A pair of query and key that is hidden has bias -inf in a tile. So causal, window, mask and bias
// are one array. Products skip hidden pairs if the other operand is not finite, because
// 0 * NaN is NaN.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/tables.hpp"

#include <keel/ext/draft/attention_dense_check.hpp>

#include <atomic>
#include <initializer_list>

namespace keel_cpu {

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

// The bias or the mask: [batch, heads, rows, keys]. A dimension of size 1 has stride 0.
struct DensePairs {
    const uint8_t *data = nullptr; // NULL: the call has no bias or mask
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

// The attention function. Forward and backward compute it. The caller has checked the arguments.
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
    int64_t tiles_of_keys() const { return (n.keys + kDenseKeys - 1) / kDenseKeys; }
    // Returns the keys first..end-1 that KEEL_DENSE_CAUSAL and KEEL_DENSE_WINDOW do not hide from
    // query i. first and end rise with i.
    Range keys_of(int64_t i) const;
    // Returns the keys that at least one of the queries from..end-1 can see.
    Range keys_of(int64_t from, int64_t end) const {
        return {keys_of(from).begin, keys_of(end - 1).end};
    }
    bool has(uint64_t bit) const { return (args.features & bit) != 0; }
};

// A tile of pairs of query and key: queries `row`..row+rows-1 and keys `key`..key+keys-1 of a head.
struct DenseTile {
    int64_t b, h, row, rows, key, keys;
};

// Divides scratch memory into parts. Without memory, it only counts the floats.
class DenseRoom {
  public:
    explicit DenseRoom(float *base) : base_(base) {}
    float *take(int64_t floats) {
        float *at = base_ == nullptr ? nullptr : base_ + used_;
        used_ += round_up(floats, kPad);
        return at;
    }
    uint16_t *take16(int64_t halves) { return reinterpret_cast<uint16_t *>(take(halves / 2)); }
    int64_t used() const { return used_; }

  private:
    float *base_;
    int64_t used_ = 0;
};

// Rows of a matrix in f32.
struct DenseRowsOf {
    const float *data;
    int64_t stride;
    DenseRowsOf from(int64_t row) const { return {data + row * stride, stride}; }
};

// ---- parts of both passes (attention/dense_tiles.cpp) ----

// Returns rows from..from+count-1 of a head, as f32. The rows are in place if possible. Otherwise
// they are converted to `room`, with zeros after each row. If count is a multiple of kPad, `whole`
// has no effect. Otherwise `whole` requires `room`, because whole vectors of rows are read.
DenseRowsOf dense_rows(const DenseAttention &a, const DenseTensor &t, int64_t b, int64_t h,
                       int64_t from, int64_t count, bool whole, float *room);
// Like dense_rows(), but always converts the rows to `room` and multiplies them by `factor`.
void load_scaled(const DenseAttention &a, const DenseTensor &t, int64_t b, int64_t h, int64_t from,
                 int64_t count, float factor, float *room);
// Fills the tile `bias` with bias, and -inf for hidden pairs. If the tile would be all 0, returns
// false and does not fill it.
bool fill_bias(const DenseAttention &a, const DenseTile &t, float *bias);
// Fills the tile `keep` with the factors of dropout: 0, or 1 / (1 - dropout).
void fill_keep(const DenseAttention &a, const DenseTile &t, float *keep);

// Which pairs of a product are skipped if the other operand is not finite. NULL: none. The pointers
// have the shape of the product's left operand.
struct DenseSkips {
    const float *bias, *keep;
};
// sums[rows][cols] += x[rows][depth] * y[depth][cols]. x is a tile of pairs, or its transpose.
void add_product(const DenseAttention &a, const LeftMatrix &x, DenseSkips skips, int64_t rows,
                 int64_t depth, DenseRowsOf y, int64_t cols, float *sums);

// Returns the kernels of bf16 products. NULL: the products must be f32, because q, k, v or one of
// `others` is not bf16, or because bf16 would not be faster.
const Bf16AttentionKernels *bf16_products(const keel_ctx *ctx, const DenseAttention &a,
                                          std::initializer_list<const keel_tensor *> others);

// ---- the passes ----

keel_status run_dense_forward(keel_ctx *ctx, const DenseAttention &a,
                              const keel_dense_outputs &outputs) noexcept;
keel_status run_dense_backward(keel_ctx *ctx, const DenseAttention &a,
                               const keel_dense_gradients &gradients) noexcept;

// Returns the number of workers for this work. The matrix products of the work take `products`
// times rows * keys * head_dim additions.
uint32_t dense_workers(const keel_ctx *ctx, const DenseAttention &a, int64_t products);

} // namespace keel_cpu
