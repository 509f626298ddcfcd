#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <cmath>

namespace keel::conformance {
namespace {

void gate_case(Suite &suite, int64_t m, int64_t n, keel_dtype a, uint64_t features, Layout layout,
               bool in_place, bool with_up, float spread, float bad) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const keel_op op = suite.op();
    const bool interleaved = (features & KEEL_GATE_INTERLEAVED) != 0;
    Case c;
    c.name = fmt::format(
        "m={} n={} {} features={} gap={} shift={} in_place={} up={} spread={} bad={}", m, n,
        keel_dtype_name(a), features, layout.gap, layout.shift, in_place, with_up, spread, bad);
    c.may_refuse = layout.gap != 0 || layout.shift != 0;
    Tensor gate = random_tensor(rng, a, {m, interleaved ? 2 * n : n}, layout, spread);
    if (interleaved) { // the values of `gate` have this spread; other tensors do not
        std::vector<double> values = gate.values();
        for (size_t i = 1; i < values.size(); i += 2) values[i] /= static_cast<double>(spread);
        gate.set({values.begin(), values.end()});
    }
    if (bad != 0) poison(rng, gate, bad, 1);
    const int gate_at = c.scene.add(std::move(gate));
    const int up =
        with_up && !interleaved ? c.scene.add(random_tensor(rng, a, {m, n}, layout)) : none;
    const int out = in_place && !interleaved ? gate_at : c.scene.add(blank(a, {m, n}, layout));
    c.outputs = {{out, 4e-6}};
    c.call = [=](Stage &stage) {
        keel_gate_args g = {};
        g.h = KEEL_HEADER(keel_gate_args);
        g.features = features;
        g.gate = stage.tensor(gate_at);
        g.up = stage.tensor(up);
        g.out = stage.tensor(out);
        return stage.run(op, g);
    };
    suite.check(std::move(c));
}

void gate_cases(Suite &suite) {
    const bool gelu = suite.op() == KEEL_OP_GELU_MUL;
    std::vector<uint64_t> forms = {0, KEEL_GATE_INTERLEAVED};
    if (gelu)
        forms = {0, KEEL_GATE_INTERLEAVED, KEEL_GELU_TANH, KEEL_GATE_INTERLEAVED | KEEL_GELU_TANH};
    for (const uint64_t features : forms) {
        for (const int64_t n : sizes(suite.quick(), {64, 128, 256, 512}, 32)) {
            gate_case(suite, 1 + n % 3, n, KEEL_DTYPE_F32, features, {}, n % 2 == 1, true, 3.0F, 0);
            if (gelu) gate_case(suite, 2, n, KEEL_DTYPE_F32, features, {}, false, false, 3.0F, 0);
        }
        for (const keel_dtype a : suite.activations()) {
            for (const Layout &layout : layouts(suite.quick()))
                gate_case(suite, 5, 77, a, features, layout, layout.gap == 3, true, 1.0F, 0);
            gate_case(suite, 3, 50, a, features, {}, false, true, 1.0F, std::nanf(""));
            gate_case(suite, 3, 50, a, features, {}, false, true, 1.0F, INFINITY);
        }
        for (const float spread : {1e-6F, 40.0F, 200.0F})
            gate_case(suite, 3, 130, KEEL_DTYPE_F32, features, {}, false, true, spread, 0);
    }
}

void plain_case(Suite &suite, const std::vector<int64_t> &shape, keel_dtype a, keel_dtype b,
                keel_dtype out_dtype, Layout layout, bool in_place, float factor, float bad) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const keel_op op = suite.op();
    Case c;
    Tensor first = random_tensor(rng, a, shape, layout);
    if (bad != 0) poison(rng, first, bad, 1);
    c.name = fmt::format("a={} b={} out={} gap={} shift={} in_place={} factor={} bad={}",
                         shape_text(first), keel_dtype_name(b), keel_dtype_name(out_dtype),
                         layout.gap, layout.shift, in_place, factor, bad);
    c.may_refuse = layout.gap != 0 || layout.shift != 0;
    const int a_at = c.scene.add(std::move(first));
    int b_at = none;
    if (op == KEEL_OP_ADD) b_at = c.scene.add(random_tensor(rng, b, shape, layout));
    if (op == KEEL_OP_ADD_BIAS)
        b_at = c.scene.add(random_tensor(rng, b, {shape.back()}, {0, layout.shift}));
    int out = a_at;
    if (op == KEEL_OP_SCALED_ADD) {
        out = c.scene.add(random_tensor(rng, out_dtype, shape, layout));
    } else if (!in_place) {
        out = c.scene.add(blank(out_dtype, shape, layout));
    }
    c.outputs = {{out, 1e-6}};
    if (op == KEEL_OP_SCALED_ADD) {
        c.outputs[0].term_sums = true;
        c.absolute = {a_at, out};
    }
    c.call = [=](Stage &stage) {
        keel_elementwise_args e = {};
        e.h = KEEL_HEADER(keel_elementwise_args);
        e.a = stage.tensor(a_at);
        e.b = stage.tensor(b_at);
        e.out = stage.tensor(out);
        e.factor = factor;
        return stage.run(op, e);
    };
    suite.check(std::move(c));
}

} // namespace

void elementwise_cases(Suite &suite) {
    if (suite.op() == KEEL_OP_SILU_MUL || suite.op() == KEEL_OP_GELU_MUL) return gate_cases(suite);
    constexpr keel_dtype f32 = KEEL_DTYPE_F32;
    for (const int64_t n : sizes(suite.quick(), {64, 128, 256, 512}, 32)) {
        plain_case(suite, {1, n}, f32, f32, f32, {}, false, 0.7F, 0);
        plain_case(suite, {3, n}, f32, f32, f32, {}, true, 1.3F, 0);
    }
    const bool bias = suite.op() == KEEL_OP_ADD_BIAS;
    for (const keel_dtype a : suite.activations()) {
        for (const keel_dtype b : suite.activations()) {
            for (const Layout &layout : layouts(suite.quick())) {
                plain_case(suite, {5, 33}, a, b, a, layout, false, 0.5F, 0);
                plain_case(suite, {5, 47}, a, b, b, layout, a == b, 0.5F, 0);
                if (bias) continue; // add_bias has only the case with a matrix
                plain_case(suite, {3, 5, 19}, a, b, a, layout, false, 2.5F, 0);
                plain_case(suite, {2, 3, 4, 21}, a, b, a, layout, false, 2.5F, 0);
            }
        }
        if (!bias) plain_case(suite, {97}, a, a, a, {0, 1}, false, 2.5F, 0);
        for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
            plain_case(suite, {4, 50}, a, a, a, {}, false, 0.5F, bad);
    }
}

} // namespace keel::conformance
