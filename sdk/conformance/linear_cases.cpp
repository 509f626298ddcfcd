#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <cmath>

namespace keel::conformance {
namespace {

constexpr keel_dtype weight_dtypes[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16,
                                        KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0};

// The dtypes that only weights have. Such a dtype is tested if the backend's info lists it.
constexpr keel_dtype k_dtypes[] = {KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K};

bool is_block(keel_dtype t) { return keel_dtype_block(t) > 1; }

struct MatmulShape {
    int64_t m, n, k;
    keel_dtype w = KEEL_DTYPE_F32, x = KEEL_DTYPE_F32, out = KEEL_DTYPE_F32;
    uint64_t features = 0;
    Layout layout = {};
    int sources = 0; // 0: W is a plain tensor
    keel_join join = KEEL_JOIN_ROWS;
    uint32_t use = KEEL_USE_MATMUL;
    float bad = 0; // a NaN or an infinity that is put into x and W; 0: only finite values
};

std::string name_of(const MatmulShape &s) {
    return fmt::format("m={} n={} k={} w={} x={} out={} features={} gap={} shift={} sources={} "
                       "join={} use={} bad={}",
                       s.m, s.n, s.k, keel_dtype_name(s.w), keel_dtype_name(s.x),
                       keel_dtype_name(s.out), s.features, s.layout.gap, s.layout.shift, s.sources,
                       s.join, s.use, s.bad);
}

// Divides n rows among the sources: unevenly if the sources are joined one after the other, evenly
// if their rows alternate.
std::vector<int64_t> split_rows(const MatmulShape &s) {
    if (s.join == KEEL_JOIN_INTERLEAVE)
        return std::vector<int64_t>(static_cast<size_t>(s.sources), s.n / s.sources);
    std::vector<int64_t> rows(static_cast<size_t>(s.sources), s.n / (s.sources + 1));
    rows[0] = s.n - rows.back() * (s.sources - 1);
    return rows;
}

void matmul_case(Suite &suite, const MatmulShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    Case c;
    c.name = name_of(s);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    Tensor x = random_tensor(rng, s.x, {s.m, s.k}, s.layout);
    if (s.bad != 0) poison(rng, x, s.bad, 1);
    const int x_at = c.scene.add(std::move(x));
    int w_at = none;
    int weight = none;
    c.absolute = {x_at};
    if (s.sources == 0) {
        Tensor w = random_tensor(rng, s.w, {s.n, s.k}, s.layout);
        if (s.bad != 0 && !is_block(s.w)) poison(rng, w, s.bad, 1);
        w_at = c.scene.add(std::move(w));
        c.absolute.push_back(w_at);
    } else {
        WeightSpec spec;
        spec.join = s.join;
        spec.use = s.use;
        spec.max_m = static_cast<uint32_t>(std::max<int64_t>(s.m, 1));
        for (const int64_t rows : split_rows(s)) {
            spec.sources.push_back(
                c.scene.add(random_tensor(rng, s.w, {rows, s.k}, {0, s.layout.shift})));
            c.absolute.push_back(spec.sources.back());
        }
        weight = c.scene.add(spec);
    }
    const int bias = (s.features & KEEL_MATMUL_BIAS) != 0
                         ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.n}))
                         : none;
    if (bias != none) c.absolute.push_back(bias);
    const bool accumulates = (s.features & KEEL_MATMUL_ACCUMULATE) != 0;
    const int out = c.scene.add(accumulates ? random_tensor(rng, s.out, {s.m, s.n}, s.layout)
                                            : blank(s.out, {s.m, s.n}, s.layout));
    c.absolute.push_back(out);
    c.outputs = {{out, 2e-6, is_block(s.w) ? 1.5e-2 : 4e-3, false, true}};
    c.call = [=](Stage &stage) {
        keel_matmul_args a = {};
        a.h = KEEL_HEADER(keel_matmul_args);
        a.features = s.features;
        a.x = stage.tensor(x_at);
        a.w = stage.tensor(w_at);
        a.bias = stage.tensor(bias);
        a.out = stage.tensor(out);
        if (weight != none) {
            a.weight = stage.weight(weight);
            if (a.weight == nullptr) return keel_status{KEEL_E_UNSUPPORTED};
        }
        return stage.run(KEEL_OP_MATMUL, a);
    };
    suite.check(std::move(c));
}

void matmul_grid(Suite &suite) {
    const bool quick = suite.quick();
    for (const keel_dtype w : weight_dtypes) {
        const int64_t unit = is_block(w) ? 32 : 1;
        for (const int64_t k : sizes(quick, {64, 128, 256, 512}, 32)) {
            const int64_t n = 1 + k * 7 % 40;
            const int64_t m = k % 5;
            if (k % unit == 0) matmul_case(suite, {m, n, k, w});
            if (k % unit == 0)
                matmul_case(suite, {1, n, k, w, KEEL_DTYPE_F32, KEEL_DTYPE_F32, 0, {}, 1});
        }
        for (const int64_t n : sizes(quick, {64, 128, 256, 512}, 32))
            matmul_case(suite, {n % 2 == 0 ? 1 : 3,
                                n,
                                96,
                                w,
                                KEEL_DTYPE_F32,
                                KEEL_DTYPE_F32,
                                0,
                                {},
                                n % 3 == 0 ? 0 : 1});
        for (const int64_t m : sizes(quick, {32, 64, 128, 256, 512}, quick ? 8 : 32))
            matmul_case(suite, {m, 37, 64, w, KEEL_DTYPE_F32, KEEL_DTYPE_F32, 0, {}, 1});
    }
    // These shapes are larger than any tile in every direction.
    for (const keel_dtype w : weight_dtypes) {
        for (const auto &[m, n, k] :
             {std::array<int64_t, 3>{1, 515, 2080}, {33, 129, 544}, {65, 257, 1056}}) {
            if (quick && m == 65) continue;
            matmul_case(suite, {m, n, k, w, KEEL_DTYPE_F32, KEEL_DTYPE_F32, 0, {}, 1});
        }
        // Some backends keep rows of x in f32 only up to a certain length. These rows are longer.
        // They are tested for few and many rows of x, and with accumulation.
        constexpr keel_dtype f32 = KEEL_DTYPE_F32;
        for (const int64_t m : {1, 6, 3, 9, 22}) {
            if (quick && m % 3 == 0 && m != 6) continue;
            matmul_case(
                suite,
                {m, 4 + m, 4128, w, f32, f32, KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE, {}, 1});
        }
        matmul_case(suite, {1, 8, 4160, w, f32, f32, 0, {}, 2, KEEL_JOIN_INTERLEAVE});
        if (!is_block(w)) matmul_case(suite, {2, 7, 4101, w});
    }
}

void matmul_forms(Suite &suite) {
    for (const keel_dtype w : weight_dtypes) {
        for (const keel_dtype a : suite.activations()) {
            for (const uint64_t features : {0, 1, 2, 3}) {
                if (features >= 2 && a != KEEL_DTYPE_F32) continue;
                for (const int64_t m : {1, 2, 7}) {
                    matmul_case(suite, {m, 45, 160, w, a, a, features, {}, m == 2 ? 0 : 1});
                }
            }
        }
        for (const Layout &layout : layouts(suite.quick())) {
            matmul_case(suite, {3, 21, 96, w, KEEL_DTYPE_F32, KEEL_DTYPE_F32, 0, layout});
            matmul_case(suite, {5, 34, 96, w, KEEL_DTYPE_F32, KEEL_DTYPE_F32, 0, layout, 1});
        }
        for (const int64_t m : {1, 2, 5, 19}) {
            for (const uint32_t use :
                 {uint32_t{KEEL_USE_MATMUL}, uint32_t{KEEL_USE_MATMUL | KEEL_USE_EMBED}}) {
                matmul_case(suite, {m,
                                    60,
                                    64,
                                    w,
                                    KEEL_DTYPE_F32,
                                    KEEL_DTYPE_F32,
                                    0,
                                    {},
                                    2,
                                    KEEL_JOIN_INTERLEAVE,
                                    use});
                matmul_case(
                    suite,
                    {m, 61, 64, w, KEEL_DTYPE_F32, KEEL_DTYPE_F32, 0, {}, 3, KEEL_JOIN_ROWS, use});
            }
        }
        for (const float bad : {std::nanf(""), INFINITY}) {
            constexpr keel_dtype f32 = KEEL_DTYPE_F32;
            for (const int64_t k : {64, 4128})
                matmul_case(suite, {1,
                                    k == 64 ? 40 : 5,
                                    k,
                                    w,
                                    f32,
                                    f32,
                                    0,
                                    {},
                                    1,
                                    KEEL_JOIN_ROWS,
                                    KEEL_USE_MATMUL,
                                    bad});
            matmul_case(suite, {9,
                                40,
                                64,
                                w,
                                KEEL_DTYPE_F32,
                                KEEL_DTYPE_F32,
                                0,
                                {},
                                0,
                                KEEL_JOIN_ROWS,
                                KEEL_USE_MATMUL,
                                bad});
        }
    }
}

bool takes(Suite &suite, keel_dtype dtype) {
    return (suite.subject().info().weight_dtypes >> dtype & 1) != 0;
}

void matmul_k(Suite &suite) {
    for (const keel_dtype w : k_dtypes) {
        if (!takes(suite, w)) continue;
        const keel_dtype f32 = KEEL_DTYPE_F32;
        for (const int64_t k : {256, 512, 1024})
            for (const int64_t m : {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33})
                matmul_case(
                    suite,
                    {m, 1 + (k / 32 + m * 5) % 40, k, w, f32, f32, 0, {}, m % 3 == 2 ? 0 : 1});
        for (const int64_t n : sizes(suite.quick(), {64, 128}, 32))
            matmul_case(suite,
                        {n % 2 == 0 ? 1 : 3, n, 256, w, f32, f32, 0, {}, n % 3 == 0 ? 0 : 1});
        matmul_case(suite, {1, 515, 2048, w, f32, f32, 0, {}, 1});
        matmul_case(suite, {65, 129, 1280, w, f32, f32, 0, {}, 1});
        for (const keel_dtype a : suite.activations())
            for (const uint64_t features : {0, 1, 2, 3}) {
                if (features >= 2 && a != f32) continue;
                for (const int64_t m : {1, 2, 7})
                    matmul_case(suite, {m, 45, 256, w, a, a, features, {}, m == 2 ? 0 : 1});
            }
        for (const Layout &layout : layouts(suite.quick())) {
            matmul_case(suite, {3, 21, 256, w, f32, f32, 0, layout});
            matmul_case(suite, {5, 34, 256, w, f32, f32, 0, layout, 1});
        }
        for (const uint32_t use :
             {uint32_t{KEEL_USE_MATMUL}, uint32_t{KEEL_USE_MATMUL | KEEL_USE_EMBED}}) {
            matmul_case(suite, {5, 60, 256, w, f32, f32, 0, {}, 2, KEEL_JOIN_INTERLEAVE, use});
            matmul_case(suite, {5, 61, 256, w, f32, f32, 0, {}, 3, KEEL_JOIN_ROWS, use});
        }
        for (const float bad : {std::nanf(""), INFINITY})
            matmul_case(suite,
                        {9, 40, 256, w, f32, f32, 0, {}, 1, KEEL_JOIN_ROWS, KEEL_USE_MATMUL, bad});
    }
}

void embed_case(Suite &suite, int64_t m, int64_t vocab, int64_t dim, keel_dtype w, keel_dtype a,
                int sources, uint32_t use, Layout layout, float scale) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    Case c;
    c.name = fmt::format(
        "m={} vocab={} dim={} w={} out={} sources={} use={} gap={} shift={} scale={}", m, vocab,
        dim, keel_dtype_name(w), keel_dtype_name(a), sources, use, layout.gap, layout.shift, scale);
    c.may_refuse = layout.gap != 0 || layout.shift != 0;
    std::vector<int32_t> ids(static_cast<size_t>(m));
    for (int32_t &id : ids)
        id = static_cast<int32_t>(rng() % static_cast<uint64_t>(std::max<int64_t>(vocab, 1)));
    if (m > 2) ids[1] = static_cast<int32_t>(vocab);
    if (m > 3) ids[3] = -1;
    const int ids_at = c.scene.add(integer_tensor({m}, ids));
    const int w_at =
        c.scene.add(random_tensor(rng, w, {vocab, dim}, sources == 0 ? layout : Layout{}));
    const int weight =
        sources == 0 ? none : c.scene.add(WeightSpec{{w_at}, KEEL_JOIN_ROWS, use, 1});
    const int out = c.scene.add(blank(a, {m, dim}, layout));
    c.outputs = {{out, 1e-6}};
    c.call = [=](Stage &stage) {
        keel_embed_args e = {};
        e.h = KEEL_HEADER(keel_embed_args);
        e.ids = stage.tensor(ids_at);
        e.out = stage.tensor(out);
        e.scale = scale;
        e.w = weight == none ? stage.tensor(w_at) : nullptr;
        e.weight = weight == none ? nullptr : stage.weight(weight);
        if (weight != none && e.weight == nullptr) return keel_status{KEEL_E_UNSUPPORTED};
        return stage.run(KEEL_OP_EMBED, e);
    };
    suite.check(std::move(c));
}

void embed_cases(Suite &suite) {
    const uint32_t both = KEEL_USE_MATMUL | KEEL_USE_EMBED;
    for (const keel_dtype w : weight_dtypes) {
        for (const int64_t dim : sizes(suite.quick(), {64, 128, 256}, 32)) {
            if (dim % keel_dtype_block(w) != 0) continue;
            embed_case(suite, 5, 19, dim, w, KEEL_DTYPE_F32, 0, both, {}, 1.0F);
            embed_case(suite, 3, 19, dim, w, KEEL_DTYPE_F32, 1, both, {}, 1.0F);
        }
        for (const keel_dtype a : suite.activations()) {
            for (const uint32_t use : {both, uint32_t{KEEL_USE_EMBED}}) {
                for (const int64_t m : {0, 1, 33})
                    embed_case(suite, m, 131, 96, w, a, 1, use, {}, 2.5F);
            }
        }
        for (const Layout &layout : layouts(suite.quick()))
            embed_case(suite, 4, 9, 64, w, KEEL_DTYPE_F32, 0, both, layout, 0.5F);
    }
    for (const keel_dtype w : k_dtypes) {
        if (!takes(suite, w)) continue;
        for (const keel_dtype a : suite.activations())
            for (const uint32_t use : {both, uint32_t{KEEL_USE_EMBED}})
                for (const int64_t m : {0, 1, 33})
                    embed_case(suite, m, 131, 512, w, a, 1, use, {}, 2.5F);
        embed_case(suite, 5, 19, 256, w, KEEL_DTYPE_F32, 0, both, {}, 1.0F);
    }
}

} // namespace

void linear_cases(Suite &suite) {
    if (suite.op() == KEEL_OP_EMBED) return embed_cases(suite);
    matmul_grid(suite);
    matmul_forms(suite);
    matmul_k(suite);
}

} // namespace keel::conformance
