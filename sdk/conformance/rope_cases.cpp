#include "conformance/rope_cases.hpp"

#include <fmt/format.h>

#include <cmath>

namespace keel::conformance {

TableSpec add_tables(Scene &scene, int64_t rows, int64_t rot, keel_rope_mode mode) {
    const int64_t half = rot / 2;
    std::vector<float> cos, sin;
    for (int64_t p = 0; p < rows; ++p) {
        for (int64_t i = 0; i < half; ++i) {
            const double angle =
                static_cast<double>(p) *
                std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rot));
            cos.push_back(static_cast<float>(std::cos(angle)));
            sin.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    Tensor cos_tensor = blank(KEEL_DTYPE_F32, {rows, half});
    Tensor sin_tensor = blank(KEEL_DTYPE_F32, {rows, half});
    cos_tensor.set(cos);
    sin_tensor.set(sin);
    TableSpec tables;
    tables.cos = scene.add(std::move(cos_tensor));
    tables.sin = scene.add(std::move(sin_tensor));
    tables.mode = mode;
    tables.rot = static_cast<uint32_t>(rot);
    return tables;
}

keel_rope_tables place(const TableSpec &tables, Stage &stage) {
    keel_rope_tables t = {};
    t.h = KEEL_HEADER(keel_rope_tables);
    t.cos = stage.tensor(tables.cos);
    t.sin = stage.tensor(tables.sin);
    t.mode = tables.mode;
    t.rot = tables.rot;
    return t;
}

int add_positions(Scene &scene, Rng &rng, int64_t m, int64_t kv_heads, bool per_head,
                  int32_t limit) {
    std::vector<int32_t> values(static_cast<size_t>(per_head ? m * kv_heads : m));
    for (int32_t &value : values)
        value = static_cast<int32_t>(rng() % static_cast<uint64_t>(limit));
    const std::vector<int64_t> shape =
        per_head ? std::vector<int64_t>{m, kv_heads} : std::vector<int64_t>{m};
    return scene.add(integer_tensor(shape, values, {per_head ? 3 : 0, 1}));
}

void rope_cases(Suite &suite) {
    struct Shape {
        int64_t m, heads, kv_heads, dim, rot;
        keel_dtype a = KEEL_DTYPE_F32;
        uint64_t features = 0;
        Layout layout = {};
        bool per_head = false, in_place = false;
        float bad = 0;
    };
    const auto one = [&](const Shape &s, keel_rope_mode mode) {
        if (!suite.next()) return;
        Rng &rng = suite.rng();
        Case c;
        Tensor x = random_tensor(rng, s.a, {s.m, s.heads, s.dim}, s.layout);
        if (s.bad != 0) poison(rng, x, s.bad, 1);
        c.name = fmt::format(
            "x={} rot={} mode={} features={} per_head={} in_place={} gap={} shift={} bad={}",
            shape_text(x), s.rot, mode, s.features, s.per_head, s.in_place, s.layout.gap,
            s.layout.shift, s.bad);
        c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
        const int x_at = c.scene.add(std::move(x));
        const TableSpec tables = add_tables(c.scene, 61, s.rot, mode);
        // Tests positions that are larger than the tables. They wrap around.
        const int positions =
            add_positions(c.scene, rng, s.m, s.kv_heads, s.per_head, s.m % 2 == 0 ? 61 : 1000);
        const int out =
            s.in_place ? x_at : c.scene.add(blank(s.a, {s.m, s.heads, s.dim}, s.layout));
        c.outputs = {{out, 2e-6}};
        c.call = [=](Stage &stage) {
            const keel_rope_tables placed = place(tables, stage);
            keel_rope_args r = {};
            r.h = KEEL_HEADER(keel_rope_args);
            r.features = s.features;
            r.x = stage.tensor(x_at);
            r.positions = stage.tensor(positions);
            r.tables = &placed;
            r.out = stage.tensor(out);
            return stage.run(KEEL_OP_ROPE, r);
        };
        suite.check(std::move(c));
    };
    for (const keel_rope_mode mode : {KEEL_ROPE_HALF_SPLIT, KEEL_ROPE_INTERLEAVED}) {
        for (int64_t dim = 2; dim <= 70; dim += suite.quick() ? 14 : 2)
            one({3, 3, 1, dim, dim}, mode);
        for (const int64_t dim : {64, 80, 128, 256, 320, 512}) {
            for (const uint64_t features : {0, 1}) {
                one({5, 6, 2, dim, dim, KEEL_DTYPE_F32, features, {}, true, true}, mode);
                one({4, 3, 3, dim, dim / 2, KEEL_DTYPE_F32, features, {}, false, false}, mode);
                one({4, 5, 1, dim, 0, KEEL_DTYPE_F32, features, {}, false, false}, mode);
            }
        }
        for (const int64_t m : {0, 1, 2, 33})
            one({m, 9, 3, 48, 24, KEEL_DTYPE_F32, 0, {}, true, false}, mode);
        for (const keel_dtype a : suite.activations()) {
            for (const Layout &layout : layouts(suite.quick()))
                one({5, 4, 2, 34, 34, a, 0, layout, true, false}, mode);
            one({3, 4, 2, 34, 34, a, 0, {}, false, false, std::nanf("")}, mode);
        }
    }
}

} // namespace keel::conformance
