#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace keel::conformance {
namespace {

constexpr keel_dtype floats[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16};
constexpr keel_dtype blocks[] = {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0};
constexpr keel_dtype k_types[] = {KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K,
                                  KEEL_DTYPE_Q6_K}; // only weights have these dtypes
constexpr keel_dtype all_types[] = {KEEL_DTYPE_F32,  KEEL_DTYPE_F16,  KEEL_DTYPE_BF16,
                                    KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0, KEEL_DTYPE_I32};

Tensor filled(Rng &rng, keel_dtype dtype, const std::vector<int64_t> &shape, Layout layout,
              float spread = 1.0F) {
    if (dtype != KEEL_DTYPE_I32) return random_tensor(rng, dtype, shape, layout, spread);
    Tensor t = blank(dtype, shape, layout);
    std::vector<int32_t> values(static_cast<size_t>(t.elements()));
    for (int32_t &value : values) value = static_cast<int32_t>(rng());
    t.set_integers(values);
    return t;
}

void move_case(Suite &suite, Tensor &&x, Tensor &&out_tensor, double bound, bool in_place,
               Layout layout, const std::string &extra) {
    if (!suite.next()) return;
    const keel_op op = suite.op();
    Case c;
    c.name = fmt::format("x={} out={} gap={} shift={} in_place={} {}", shape_text(x),
                         shape_text(out_tensor), layout.gap, layout.shift, in_place, extra);
    c.may_refuse = layout.gap != 0 || layout.shift != 0;
    const int x_at = op == KEEL_OP_ZERO ? none : c.scene.add(std::move(x));
    const int out = in_place ? x_at : c.scene.add(std::move(out_tensor));
    c.outputs = {{out, bound}};
    c.call = [=](Stage &stage) {
        keel_move_args a = {};
        a.h = KEEL_HEADER(keel_move_args);
        a.x = stage.tensor(x_at);
        a.out = stage.tensor(out);
        return stage.run(op, a);
    };
    suite.check(std::move(c));
}

// Checks that a cast that the header does not list is refused.
void no_cast(Suite &suite, keel_dtype from, keel_dtype to) {
    if (!suite.next()) return;
    Case c;
    Tensor x = filled(suite.rng(), from, {3, 512}, {});
    Tensor out_tensor = blank(to, {3, 512});
    c.name = fmt::format("x={} out={}", shape_text(x), shape_text(out_tensor));
    const int x_at = c.scene.add(std::move(x)), out = c.scene.add(std::move(out_tensor));
    c.call = [=](Stage &stage) {
        keel_move_args a = {};
        a.h = KEEL_HEADER(keel_move_args);
        a.x = stage.tensor(x_at);
        a.out = stage.tensor(out);
        return stage.run(KEEL_OP_CAST, a);
    };
    suite.check_refused(std::move(c));
}

void softmax_cases(Suite &suite) {
    Rng &rng = suite.rng();
    const auto one = [&](std::vector<int64_t> shape, keel_dtype a, Layout layout, bool in_place,
                         float spread, float bad, int bad_count) {
        Tensor x = random_tensor(rng, a, shape, layout, spread);
        if (bad != 0) poison(rng, x, bad, bad_count);
        move_case(suite, std::move(x), blank(a, shape, layout), 2e-6, in_place, layout,
                  fmt::format("spread={} bad={}", spread, bad));
    };
    for (const int64_t n : sizes(suite.quick(), {64, 128, 256, 512}, 32)) {
        one({2, n}, KEEL_DTYPE_F32, {}, n % 2 == 0, 3.0F, 0, 0);
        one({1, n}, KEEL_DTYPE_F32, {}, false, 50.0F, -INFINITY, 2);
    }
    for (const keel_dtype a : suite.activations()) {
        for (const Layout &layout : layouts(suite.quick()))
            one({7, 45}, a, layout, false, 2.0F, 0, 0);
        one({3, 40}, a, {}, false, 1.0F, std::nanf(""), 1);
        one({3, 40}, a, {}, false, 1.0F, INFINITY, 1);
        one({3, 17}, a, {}, false, 1.0F, -INFINITY, 1000); // all values of a row are the same
    }
}

// Returns a tensor of blocks whose values are near the limit of the block type. The block type can
// hold some of them, and cannot hold the others.
Tensor hard_for_blocks(Rng &rng, int64_t rows) {
    const float odd[] = {std::nanf(""), INFINITY, -INFINITY, 3e38F,
                         -9e6F,         1e-41F,   0.0F,      65504.0F * 120};
    Tensor t = random_tensor(rng, KEEL_DTYPE_F32, {rows, 96});
    std::vector<double> values = t.values();
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 32; i < 64; ++i) {
            if (r % 8 == 5 || r % 8 == 6) values[r * 96 + i] = static_cast<double>(odd[r % 8]);
        }
        values[r * 96 + 32 + static_cast<int64_t>(rng() % 32)] = static_cast<double>(odd[r % 8]);
    }
    t.set({values.begin(), values.end()});
    return t;
}

void cast_cases(Suite &suite) {
    Rng &rng = suite.rng();
    const auto one = [&](keel_dtype from, keel_dtype to, std::vector<int64_t> shape, Layout layout,
                         float spread, float bad) {
        Tensor x = random_tensor(rng, from, shape, layout, spread);
        if (bad != 0) poison(rng, x, bad, 2);
        move_case(suite, std::move(x), blank(to, shape, layout), 0, false, layout,
                  fmt::format("spread={} bad={}", spread, bad));
    };
    for (const keel_dtype from : floats) {
        for (const keel_dtype to : floats) {
            for (const int64_t n : sizes(suite.quick(), {64, 256}, 32))
                one(from, to, {1 + n % 3, n}, {}, 1.0F, 0);
            for (const Layout &layout : layouts(suite.quick()))
                one(from, to, {2, 3, 5, 27}, layout, 1.0F, 0);
            for (const float spread : {1e-7F, 3e-5F, 4e4F, 1e-41F})
                // the values include subnormals of f16 and values that overflow
                one(from, to, {3, 200}, {}, spread, 0);
            for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
                one(from, to, {3, 40}, {}, 1.0F, bad);
        }
    }
    for (const keel_dtype block : blocks) {
        for (const int64_t n : {0, 32, 64, 96, 128, 160, 512, 544}) {
            for (const float spread : {1.0F, 1e-5F, 1e-39F, 1e5F}) {
                one(KEEL_DTYPE_F32, block, {3, n}, {}, spread, 0);
                one(block, KEEL_DTYPE_F32, {3, n}, {}, spread, 0);
            }
        }
        for (const Layout &layout : layouts(suite.quick())) {
            one(KEEL_DTYPE_F32, block, {2, 3, 64}, layout, 1.0F, 0);
            one(block, KEEL_DTYPE_F32, {2, 3, 64}, layout, 1.0F, 0);
        }
        move_case(suite, hard_for_blocks(rng, 16), blank(block, {16, 96}), 0, false, {},
                  "values that blocks cannot hold");
    }
    for (const keel_dtype k : k_types) {
        no_cast(suite, k, k);
        for (const keel_dtype other : all_types) {
            no_cast(suite, k, other);
            no_cast(suite, other, k);
        }
    }
    for (const keel_dtype block : blocks) {
        for (const keel_dtype other : blocks) no_cast(suite, block, other);
        for (const keel_dtype half : {floats[1], floats[2]}) {
            no_cast(suite, block, half);
            no_cast(suite, half, block);
        }
    }
}

} // namespace

void move_cases(Suite &suite) {
    Rng &rng = suite.rng();
    if (suite.op() == KEEL_OP_SOFTMAX) return softmax_cases(suite);
    if (suite.op() == KEEL_OP_CAST) return cast_cases(suite);
    const bool transposes = suite.op() == KEEL_OP_TRANSPOSE;
    for (const keel_dtype dtype : all_types) {
        for (int64_t n : sizes(suite.quick(), {64, 128, 256}, 32)) {
            if (keel_dtype_block(dtype) > 1) n = n / 32 * 32;
            const int64_t rows = 1 + n % 5;
            if (transposes) {
                move_case(suite, filled(rng, dtype, {rows, 3, n}, {}), blank(dtype, {3, rows, n}),
                          0, false, {}, "");
            } else {
                move_case(suite, filled(rng, dtype, {rows, n}, {}), blank(dtype, {rows, n}), 0,
                          false, {}, "");
            }
        }
        for (const Layout &layout : layouts(suite.quick())) {
            if (transposes) {
                move_case(suite, filled(rng, dtype, {7, 4, 32}, layout),
                          blank(dtype, {4, 7, 32}, layout), 0, false, layout, "");
                continue;
            }
            move_case(suite, filled(rng, dtype, {5, 64}, layout), blank(dtype, {5, 64}), 0, false,
                      layout, "");
            move_case(suite, filled(rng, dtype, {2, 3, 4, 32}, {}),
                      blank(dtype, {2, 3, 4, 32}, layout), 0, false, layout, "");
            if (suite.op() == KEEL_OP_COPY)
                move_case(suite, filled(rng, dtype, {3, 32}, layout), blank(dtype, {3, 32}), 0,
                          true, layout, "");
        }
        const int64_t plain = keel_dtype_block(dtype) > 1 ? 96 : 61;
        if (!transposes)
            move_case(suite, filled(rng, dtype, {plain}, {}), blank(dtype, {plain}), 0, false, {},
                      "");
    }
}

void rows_cases(Suite &suite) {
    Rng &rng = suite.rng();
    const keel_op op = suite.op();
    const auto one = [&](int64_t rows, int64_t n, int64_t k, keel_dtype a, Layout layout, int ties,
                         float bad) {
        if (!suite.next()) return;
        Case c;
        Tensor x = random_tensor(rng, a, {rows, n}, layout, 3.0F);
        if (ties > 0 && n > 0) poison(rng, x, 17.0F, ties);
        if (bad != 0) poison(rng, x, bad, 1);
        c.name = fmt::format("x={} k={} gap={} shift={} ties={} bad={}", shape_text(x), k,
                             layout.gap, layout.shift, ties, bad);
        c.may_refuse = layout.gap != 0 || layout.shift != 0;
        const int x_at = c.scene.add(std::move(x));
        const bool top = op == KEEL_OP_TOP_K_ROWS;
        const int values = top ? c.scene.add(blank(KEEL_DTYPE_F32, {rows, k}, layout)) : none;
        const int index = c.scene.add(top ? blank(KEEL_DTYPE_I32, {rows, k}, layout)
                                          : blank(KEEL_DTYPE_I32, {rows}));
        c.outputs = {{index, 0}};
        if (top) c.outputs.push_back({values, 0});
        c.call = [=](Stage &stage) {
            keel_rows_args r = {};
            r.h = KEEL_HEADER(keel_rows_args);
            r.x = stage.tensor(x_at);
            r.values = stage.tensor(values);
            r.index = stage.tensor(index);
            return stage.run(op, r);
        };
        suite.check(std::move(c));
    };
    for (const int64_t n : sizes(suite.quick(), {64, 128, 256, 512, 2048}, 32)) {
        one(1, n, std::min<int64_t>(n, 5), KEEL_DTYPE_F32, {}, 0, 0);
        one(3, n, n, KEEL_DTYPE_F32, {}, 4, 0);
    }
    for (const keel_dtype a : suite.activations()) {
        for (const Layout &layout : layouts(suite.quick())) one(5, 133, 7, a, layout, 6, 0);
        for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) one(4, 60, 9, a, {}, 2, bad);
        one(2, 32003, 40, a, {}, 9, 0);
        one(2, 33, 0, a, {}, 0, 0);
        one(0, 33, 4, a, {}, 0, 0);
        one(2, 41, 41, a, {}, 400, 0); // all values are equal
        one(3, 41, 3, a, {}, 400, -INFINITY);
    }
}

} // namespace keel::conformance
