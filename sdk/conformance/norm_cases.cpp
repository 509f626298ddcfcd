#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <cmath>

namespace keel::conformance {
namespace {

struct NormShape {
    std::vector<int64_t> shape;
    keel_dtype a = KEEL_DTYPE_F32;
    Layout layout = {};
    bool in_place = false;
    bool bias = true;
    float spread = 1.0F;
    float bad = 0;
};

void norm_case(Suite &suite, const NormShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const keel_op op = suite.op();
    Case c;
    Tensor x = random_tensor(rng, s.a, s.shape, s.layout, s.spread);
    if (s.bad != 0) poison(rng, x, s.bad, 1);
    c.name = fmt::format("x={} gap={} shift={} in_place={} bias={} spread={} bad={}", shape_text(x),
                         s.layout.gap, s.layout.shift, s.in_place, s.bias, s.spread, s.bad);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    const int x_at = c.scene.add(std::move(x));
    const int weight =
        c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.shape.back()}, {0, s.layout.shift}));
    const int residual =
        op == KEEL_OP_ADD_RMS_NORM
            ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, s.shape, s.layout, s.spread))
            : none;
    const int bias = op == KEEL_OP_LAYER_NORM && s.bias
                         ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.shape.back()}))
                         : none;
    const int out = s.in_place ? x_at : c.scene.add(blank(s.a, s.shape, s.layout));
    c.outputs = {{out, 4e-6}};
    if (residual != none) c.outputs.push_back({residual, 4e-6});
    c.call = [=](Stage &stage) {
        keel_norm_args a = {};
        a.h = KEEL_HEADER(keel_norm_args);
        a.x = stage.tensor(x_at);
        a.residual = stage.tensor(residual);
        a.weight = stage.tensor(weight);
        a.bias = stage.tensor(bias);
        a.out = stage.tensor(out);
        a.eps = 1e-5F;
        return stage.run(op, a);
    };
    suite.check(std::move(c));
}

} // namespace

void norm_cases(Suite &suite) {
    for (const int64_t dim : sizes(suite.quick(), {64, 128, 256, 512, 2048}, 32)) {
        norm_case(suite, {{1, dim}});
        norm_case(suite, {{3, dim}, KEEL_DTYPE_F32, {}, true});
    }
    for (const int64_t m : sizes(suite.quick(), {64}, suite.quick() ? 8 : 32))
        norm_case(suite, {{m, 40}});
    for (const keel_dtype a : suite.activations()) {
        for (const Layout &layout : layouts(suite.quick())) {
            norm_case(suite, {{5, 67}, a, layout});
            norm_case(suite, {{2, 7, 33}, a, layout});
            norm_case(suite, {{3, 5, 64}, a, layout, true, false});
        }
        for (const float bad : {std::nanf(""), INFINITY})
            norm_case(suite, {{4, 50}, a, {}, false, true, 1.0F, bad});
    }
    for (const float spread : {1e-4F, 1e-20F, 300.0F, 1e-42F})
        norm_case(suite, {{3, 130}, KEEL_DTYPE_F32, {}, false, true, spread});
}

} // namespace keel::conformance
