#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/view.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace keel::reference {
namespace {

bool is_float_type(keel_dtype t) {
    return t == KEEL_DTYPE_F32 || t == KEEL_DTYPE_F16 || t == KEEL_DTYPE_BF16;
}

bool has_nan(const Row &row) {
    return std::any_of(row.begin(), row.end(), [](double value) { return std::isnan(value); });
}

bool is_finite(const Row &row) {
    return std::all_of(row.begin(), row.end(), [](double value) { return std::isfinite(value); });
}

} // namespace

void check_softmax(const keel_move_args &a) {
    need(a.x, "x", types_float, {any_size, any_size});
    need(a.out, "out", types_float);
    need_same_shape(a.x, a.out, "x and out");
}

// out[r, :] = exp(x - max) / sum
void run_softmax(const keel_move_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    for (int64_t r = 0; r < x.outer[2] && x.n != 0; ++r) {
        Row row = load(x, x.row(r));
        const double largest = *std::max_element(row.begin(), row.end());
        double sum = 0;
        if (largest == -std::numeric_limits<double>::infinity() && !has_nan(row)) {
            std::fill(row.begin(), row.end(), 0.0); // all elements are -inf
            sum = 1;
        } else {
            for (double &value : row) sum += value = std::exp(value - largest);
        }
        for (double &value : row) value /= sum;
        store(out, out.row(r), row);
    }
}

void check_cast(const keel_move_args &a) {
    need(a.x, "x", types_weight);
    need(a.out, "out", types_weight);
    need_same_shape(a.x, a.out, "x and out");
    const bool x_plain = is_float_type(a.x->dtype);
    const bool out_plain = is_float_type(a.out->dtype);
    if ((!x_plain && a.out->dtype != KEEL_DTYPE_F32) ||
        (!out_plain && a.x->dtype != KEEL_DTYPE_F32)) {
        refuse(KEEL_E_UNSUPPORTED, "block types can be cast only to and from f32");
    }
}

void run_cast(const keel_move_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    x.each_row([&](int64_t i, int64_t j, int64_t k) {
        store(out, out.row(i, j, k), load(x, x.row(i, j, k)));
    });
}

void check_copy(const keel_move_args &a) {
    need(a.x, "x", types_any);
    need(a.out, "out", types_any);
    need_same_shape(a.x, a.out, "x and out");
    need_same_dtype(a.x, a.out, "x and out");
}

void run_copy(const keel_move_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    x.each_row([&](int64_t i, int64_t j, int64_t k) {
        if (x.n != 0) std::memmove(out.row(i, j, k), x.row(i, j, k), x.row_bytes());
    });
}

void check_transpose(const keel_move_args &a) {
    need(a.x, "x", types_any, {any_size, any_size, any_size});
    need(a.out, "out", types_any, {a.x->shape[1], a.x->shape[0], a.x->shape[2]});
    need_same_dtype(a.x, a.out, "x and out");
}

// out[b, a, :] = x[a, b, :]
void run_transpose(const keel_move_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    for (int64_t i = 0; i < a.x->shape[0]; ++i) {
        for (int64_t j = 0; j < a.x->shape[1]; ++j) {
            if (x.n != 0) std::memcpy(out.row(j, i), x.row(i, j), x.row_bytes());
        }
    }
}

void check_zero(const keel_move_args &a) { need(a.out, "out", types_any); }

void run_zero(const keel_move_args &a) {
    const View out = bind(a.out);
    out.each_row([&](int64_t i, int64_t j, int64_t k) {
        if (out.n != 0) std::memset(out.row(i, j, k), 0, out.row_bytes());
    });
}

void check_argmax_rows(const keel_rows_args &a) {
    need(a.x, "x", types_float, {any_size, any_size});
    need(a.index, "index", types_i32, {a.x->shape[0]});
}

void run_argmax_rows(const keel_rows_args &a) {
    const View x = bind(a.x);
    const View index = bind(a.index);
    for (int64_t r = 0; r < a.x->shape[0]; ++r) {
        const Row row = load(x, x.row(r));
        int32_t place = -1;
        if (!row.empty() && is_finite(row)) {
            place = static_cast<int32_t>(std::max_element(row.begin(), row.end()) -
                                         row.begin()); // if values are equal, the first one wins
        }
        View::set(index.data, r, place);
    }
}

void check_top_k_rows(const keel_rows_args &a) {
    need(a.x, "x", types_float, {any_size, any_size});
    need(a.index, "index", types_i32, {a.x->shape[0], any_size});
    need(a.values, "values", types_f32, {a.x->shape[0], a.index->shape[1]});
    need_that(a.index->shape[1] <= a.x->shape[1], "k is larger than the length of a row");
}

void run_top_k_rows(const keel_rows_args &a) {
    const View x = bind(a.x);
    const View index = bind(a.index);
    const View values = bind(a.values);
    for (int64_t r = 0; r < a.x->shape[0]; ++r) {
        const Row row = load(x, x.row(r));
        const bool broken = has_nan(row);
        std::vector<int32_t> order(row.size());
        std::iota(order.begin(), order.end(), 0);
        if (!broken) {
            std::stable_sort(order.begin(), order.end(),
                             [&](int32_t p, int32_t q) { return row[p] > row[q]; });
        }
        for (int64_t i = 0; i < index.n; ++i) {
            View::set(index.row(r), i, broken ? -1 : order[i]);
            View::set(values.row(r), i, broken ? std::nanf("") : static_cast<float>(row[order[i]]));
        }
    }
}

} // namespace keel::reference
