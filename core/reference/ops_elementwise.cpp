#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/view.hpp"

#include <cmath>

namespace keel::reference {
namespace {

Row load_row(const View &view, int64_t i, int64_t j, int64_t k) {
    return load(view, view.row(i, j, k));
}

void need_gate(const keel_gate_args &a, bool up_may_lack) {
    const bool interleaved = (a.features & KEEL_GATE_INTERLEAVED) != 0;
    need(a.out, "out", types_float, {any_size, any_size});
    need(a.gate, "gate", types_float, {a.out->shape[0], a.out->shape[1] * (interleaved ? 2 : 1)});
    need_that(!interleaved || a.up == nullptr, "up must be NULL if the gate is interleaved");
    if (!interleaved && (!up_may_lack || a.up != nullptr)) {
        need(a.up, "up", types_float, {a.out->shape[0], a.out->shape[1]});
    }
}

// out = activation(gate) * up, row by row
template <typename Activation>
void run_gate(const keel_gate_args &a, const Activation &activation) {
    const View gate = bind(a.gate);
    const View out = bind(a.out);
    const bool interleaved = (a.features & KEEL_GATE_INTERLEAVED) != 0;
    for (int64_t t = 0; t < a.out->shape[0]; ++t) {
        const Row g = load(gate, gate.row(t));
        const Row up = a.up != nullptr ? load(bind(a.up), bind(a.up).row(t)) : Row();
        Row y(static_cast<size_t>(out.n));
        for (size_t i = 0; i < y.size(); ++i) {
            if (interleaved) {
                y[i] = activation(g[2 * i]) * g[2 * i + 1];
            } else {
                y[i] = activation(g[i]) * (up.empty() ? 1.0 : up[i]);
            }
        }
        store(out, out.row(t), y);
    }
}

void need_pair(const keel_elementwise_args &a) {
    need(a.a, "a", types_float);
    need(a.out, "out", types_float);
    need_same_shape(a.a, a.out, "a and out");
}

} // namespace

void check_silu_mul(const keel_gate_args &a) { need_gate(a, false); }

void run_silu_mul(const keel_gate_args &a) {
    run_gate(a, [](double g) { return g / (1 + std::exp(-g)); });
}

void check_gelu_mul(const keel_gate_args &a) { need_gate(a, true); }

void run_gelu_mul(const keel_gate_args &a) {
    constexpr double root_half = 0.70710678118654752440;        // sqrt(1/2)
    constexpr double root_two_over_pi = 0.79788456080286535588; // sqrt(2/pi)
    if ((a.features & KEEL_GELU_TANH) != 0) {
        run_gate(a, [](double g) {
            return 0.5 * g * (1 + std::tanh(root_two_over_pi * (g + 0.044715 * g * g * g)));
        });
    } else {
        run_gate(a, [](double g) { return 0.5 * g * (1 + std::erf(g * root_half)); });
    }
}

void check_add(const keel_elementwise_args &a) {
    need_pair(a);
    need(a.b, "b", types_float);
    need_same_shape(a.a, a.b, "a and b");
}

void run_add(const keel_elementwise_args &args) {
    const View a = bind(args.a);
    const View b = bind(args.b);
    const View out = bind(args.out);
    a.each_row([&](int64_t i, int64_t j, int64_t k) {
        Row row = load_row(a, i, j, k);
        const Row other = load_row(b, i, j, k);
        for (size_t e = 0; e < row.size(); ++e) row[e] += other[e];
        store(out, out.row(i, j, k), row);
    });
}

void check_add_bias(const keel_elementwise_args &a) {
    need_pair(a);
    need(a.b, "b", types_float, {last_dim(a.a)});
}

void run_add_bias(const keel_elementwise_args &args) {
    const View a = bind(args.a);
    const View out = bind(args.out);
    const Row bias = load(bind(args.b), bind(args.b).data);
    a.each_row([&](int64_t i, int64_t j, int64_t k) {
        Row row = load_row(a, i, j, k);
        for (size_t e = 0; e < row.size(); ++e) row[e] += bias[e];
        store(out, out.row(i, j, k), row);
    });
}

void check_scale(const keel_elementwise_args &a) { need_pair(a); }

void run_scale(const keel_elementwise_args &args) {
    const View a = bind(args.a);
    const View out = bind(args.out);
    a.each_row([&](int64_t i, int64_t j, int64_t k) {
        Row row = load_row(a, i, j, k);
        for (double &value : row) value *= static_cast<double>(args.factor);
        store(out, out.row(i, j, k), row);
    });
}

void check_scaled_add(const keel_elementwise_args &a) { need_pair(a); }

void run_scaled_add(const keel_elementwise_args &args) {
    const View a = bind(args.a);
    const View out = bind(args.out);
    a.each_row([&](int64_t i, int64_t j, int64_t k) {
        const Row row = load_row(a, i, j, k);
        Row sum = load_row(out, i, j, k);
        for (size_t e = 0; e < row.size(); ++e) sum[e] += static_cast<double>(args.factor) * row[e];
        store(out, out.row(i, j, k), sum);
    });
}

} // namespace keel::reference
