#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/view.hpp"

#include <limits>

namespace keel::reference {
namespace {

// The rows of a weight. The weight is given as a handle or as a tensor. All rows have one dtype.
struct Rows {
    const std::byte *data;
    keel_dtype dtype;
    int64_t rows, cols, stride;

    Row load_row(int64_t row) const { return load(data + row * stride, dtype, cols); }
};

Rows rows_of(const keel_weight *handle, const keel_tensor *tensor) {
    if (handle != nullptr) {
        const Weight &weight = of(handle);
        const auto stride = static_cast<int64_t>(
            keel_dtype_row_bytes(weight.dtype, static_cast<uint64_t>(weight.cols)));
        return {weight.data, weight.dtype, weight.rows, weight.cols, stride};
    }
    const View view = bind(tensor);
    return {view.data, view.dtype, view.outer[2], view.n, view.stride[2]};
}

void need_weight(const keel_weight *handle, const keel_tensor *tensor, int64_t rows, int64_t cols) {
    if (handle == nullptr) {
        need(tensor, "w", types_matrix, {rows, cols});
    } else {
        need_that(rows == any_size || of(handle).rows == rows,
                  "the weight has another number of rows");
        need_that(of(handle).cols == cols, "the weight has another number of columns");
    }
}

} // namespace

void check_matmul(const keel_matmul_args &a) {
    need(a.x, "x", types_float, {any_size, any_size});
    const int64_t m = a.x->shape[0];
    const int64_t k = a.x->shape[1];
    need(a.out, "out", types_float, {m, any_size});
    const int64_t n = a.out->shape[1];
    need_weight(a.weight, a.w, n, k);
    if ((a.features & KEEL_MATMUL_BIAS) != 0) need(a.bias, "bias", types_f32, {n});
    if ((a.features & KEEL_MATMUL_ACCUMULATE) != 0) {
        need_that(a.out->dtype == KEEL_DTYPE_F32, "with accumulate, out must be f32");
    }
}

// out[m, n] = x[m, k] * W[n, k]^T (+ bias) (+ out)
void run_matmul(const keel_matmul_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    const Rows w = rows_of(a.weight, a.w);
    const int64_t m = x.outer[2];
    std::vector<Row> left;
    std::vector<Row> sums;
    for (int64_t i = 0; i < m; ++i) {
        left.push_back(load(x, x.row(i)));
        sums.emplace_back(static_cast<size_t>(out.n), 0.0);
    }
    for (int64_t j = 0; j < out.n && m != 0; ++j) {
        const Row right = w.load_row(j);
        for (int64_t i = 0; i < m; ++i) sums[i][j] = dot(left[i], right);
    }
    const Row bias =
        (a.features & KEEL_MATMUL_BIAS) != 0 ? load(bind(a.bias), bind(a.bias).data) : Row();
    for (int64_t i = 0; i < m; ++i) {
        const Row old = (a.features & KEEL_MATMUL_ACCUMULATE) != 0 ? load(out, out.row(i)) : Row();
        for (size_t j = 0; j < sums[i].size(); ++j) {
            if (!bias.empty()) sums[i][j] += bias[j];
            if (!old.empty()) sums[i][j] += old[j];
        }
        store(out, out.row(i), sums[i]);
    }
}

void check_embed(const keel_embed_args &a) {
    need(a.ids, "ids", types_i32, {any_size});
    need(a.out, "out", types_float, {a.ids->shape[0], any_size});
    need_weight(a.weight, a.w, any_size, a.out->shape[1]);
}

// out[t, :] = W[ids[t], :] * scale
void run_embed(const keel_embed_args &a) {
    const View ids = bind(a.ids);
    const View out = bind(a.out);
    const Rows w = rows_of(a.weight, a.w);
    for (int64_t t = 0; t < ids.n; ++t) {
        const int32_t id = ids.integer(t);
        Row row(static_cast<size_t>(out.n), std::numeric_limits<double>::quiet_NaN());
        if (id >= 0 && id < w.rows) {
            row = w.load_row(id);
            for (double &value : row) value *= static_cast<double>(a.scale);
        }
        store(out, out.row(t), row);
    }
}

} // namespace keel::reference
