#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/rows.hpp"

#include <cmath>

namespace keel::reference {

void rms_normalize(Row &x, const Row &weight, double eps) {
    const double mean_square = dot(x, x) / static_cast<double>(x.size());
    const double scale = 1 / std::sqrt(mean_square + eps);
    for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] * scale * weight[i];
}

namespace {

void need_norm(const keel_norm_args &a) {
    need(a.x, "x", types_float);
    need_that(a.x->rank == 2 || a.x->rank == 3, "x is neither [m, dim] nor [m, heads, dim]");
    need(a.out, "out", types_float);
    need_same_shape(a.x, a.out, "x and out");
    need(a.weight, "weight", types_f32, {last_dim(a.x)});
}

void layer_normalize(Row &x, const Row &weight, const Row &bias, double eps) {
    const auto n = static_cast<double>(x.size());
    double mean = 0;
    for (const double value : x) mean += value / n;
    double variance = 0;
    for (const double value : x) variance += (value - mean) * (value - mean) / n;
    const double scale = 1 / std::sqrt(variance + eps);
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = (x[i] - mean) * scale * weight[i] + (bias.empty() ? 0.0 : bias[i]);
    }
}

} // namespace

void check_rms_norm(const keel_norm_args &a) { need_norm(a); }

// out = x / sqrt(mean(x^2) + eps) * weight
void run_rms_norm(const keel_norm_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    const Row weight = load(bind(a.weight), bind(a.weight).data);
    x.each_row([&](int64_t i, int64_t j, int64_t k) {
        Row row = load(x, x.row(i, j, k));
        rms_normalize(row, weight, a.eps);
        store(out, out.row(i, j, k), row);
    });
}

void check_add_rms_norm(const keel_norm_args &a) {
    need_norm(a);
    need(a.residual, "residual", types_f32);
    need_same_shape(a.x, a.residual, "x and residual");
}

// residual += x; out = rms_norm(residual)
void run_add_rms_norm(const keel_norm_args &a) {
    const View x = bind(a.x);
    const View residual = bind(a.residual);
    const View out = bind(a.out);
    const Row weight = load(bind(a.weight), bind(a.weight).data);
    x.each_row([&](int64_t i, int64_t j, int64_t k) {
        Row row = load(x, x.row(i, j, k));
        const Row old = load(residual, residual.row(i, j, k));
        for (size_t e = 0; e < row.size(); ++e) row[e] += old[e];
        store(residual, residual.row(i, j, k), row);
        row = load(residual, residual.row(i, j, k)); // the sum in f32, as it is stored
        rms_normalize(row, weight, a.eps);
        store(out, out.row(i, j, k), row);
    });
}

void check_layer_norm(const keel_norm_args &a) {
    need_norm(a);
    if (a.bias != nullptr) need(a.bias, "bias", types_f32, {last_dim(a.x)});
}

// out = (x - mean) / sqrt(var + eps) * weight + bias
void run_layer_norm(const keel_norm_args &a) {
    const View x = bind(a.x);
    const View out = bind(a.out);
    const Row weight = load(bind(a.weight), bind(a.weight).data);
    const Row bias = a.bias != nullptr ? load(bind(a.bias), bind(a.bias).data) : Row();
    x.each_row([&](int64_t i, int64_t j, int64_t k) {
        Row row = load(x, x.row(i, j, k));
        layer_normalize(row, weight, bias, a.eps);
        store(out, out.row(i, j, k), row);
    });
}

} // namespace keel::reference
