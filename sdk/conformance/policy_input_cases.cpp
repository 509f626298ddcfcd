#include "conformance/rope_cases.hpp"
#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace keel::conformance {
namespace {

struct KeysShape {
    std::vector<int32_t> lengths = {40, 7, 65};
    int64_t dim = 64;
    keel_dtype dtype = KEEL_DTYPE_F32;
    uint64_t features = 0;
    int64_t begin = 0, end = 65;
    int64_t r = 5; // columns of the projection; 0: no projection
    keel_rope_mode mode = KEEL_ROPE_HALF_SPLIT;
    uint32_t block_slots = 16;
};

void keys_case(Suite &suite, const KeysShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const keel_op op = suite.op();
    Case c;
    CacheShape shape;
    shape.lengths = s.lengths;
    shape.head_dim = s.dim;
    shape.v_head_dim = s.dim;
    shape.k_dtype = shape.v_dtype = s.dtype;
    shape.block_slots = s.block_slots;
    c.name = fmt::format("heads={} dim={} {} features={} range={}..{} r={} mode={} block={}",
                         s.lengths.size(), s.dim, keel_dtype_name(s.dtype), s.features, s.begin,
                         s.end, s.r, s.mode, s.block_slots);
    const int cache = add_cache(c.scene, rng, shape);
    const auto heads = static_cast<int64_t>(s.lengths.size());
    const int64_t slots =
        std::max(s.end, int64_t{*std::max_element(s.lengths.begin(), s.lengths.end())}) + 1;
    const bool norms = op == KEEL_OP_KEY_PROJECT && (s.features & KEEL_KEYS_NORMS) != 0;
    const bool rotates = op == KEEL_OP_KEY_PROJECT && (s.features & KEEL_KEYS_UNROTATED) != 0;
    const bool projects = op == KEEL_OP_KEY_PROJECT && !norms && s.r != 0;
    const int projection =
        projects ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {s.dim, s.r}, {1, 0})) : none;
    std::vector<int64_t> out_shape = {heads, slots};
    if (op == KEEL_OP_KEY_SUM) out_shape = {heads, s.dim};
    if (op == KEEL_OP_KEY_PROJECT && !norms) out_shape = {heads, slots, projects ? s.r : s.dim};
    const int out = c.scene.add(blank(KEEL_DTYPE_F32, out_shape, {2, 0}));
    const TableSpec tables = rotates ? add_tables(c.scene, 90, s.dim / 2 * 2, s.mode) : TableSpec{};
    c.outputs = {{out, 4e-6}};
    if (rotates && projects) { // the bound for one element: |k| * (|cos| + |sin|)
        const Tensor &cos = c.scene.tensors[tables.cos];
        const std::vector<double> cosines = cos.values();
        const std::vector<double> sines = c.scene.tensors[tables.sin].values();
        std::vector<float> sums, zeros(cosines.size(), 0.0F);
        for (size_t i = 0; i < cosines.size(); ++i)
            sums.push_back(static_cast<float>(std::fabs(cosines[i]) + std::fabs(sines[i])));
        Tensor stand_in = cos;
        stand_in.set(sums);
        c.stand_ins.emplace_back(tables.cos, stand_in);
        stand_in.set(zeros);
        c.stand_ins.emplace_back(tables.sin, stand_in);
    }
    if (projects || (op == KEEL_OP_KEY_SUM && s.features == 0)) {
        c.outputs[0].term_sums = true;
        c.absolute = {c.scene.caches[cache].k};
        if (projects) c.absolute.push_back(projection);
    }
    c.call = [=](Stage &stage) {
        const keel_rope_tables placed = rotates ? place(tables, stage) : keel_rope_tables{};
        keel_keys_args a = {};
        a.h = KEEL_HEADER(keel_keys_args);
        a.features = s.features;
        a.kv = stage.cache(cache);
        a.tables = rotates ? &placed : nullptr;
        a.projection = stage.tensor(projection);
        a.out = stage.tensor(out);
        a.begin = s.begin;
        a.end = s.end;
        return stage.run(op, a);
    };
    suite.check(std::move(c));
}

void keys_cases(Suite &suite) {
    std::vector<uint64_t> forms = {0};
    if (suite.op() == KEEL_OP_KEY_PROJECT)
        forms = {0, KEEL_KEYS_UNROTATED, KEEL_KEYS_NORMS, KEEL_KEYS_NORMS | KEEL_KEYS_UNROTATED};
    if (suite.op() == KEEL_OP_KEY_SUM) forms = {0, KEEL_KEYS_NORMALIZED};
    if (suite.op() == KEEL_OP_VALUE_NORMS) forms = {0, KEEL_KEYS_L1};
    for (const uint64_t features : forms) {
        for (const keel_dtype dtype : cache_dtypes) {
            for (const int64_t r : {0, 1, 7, 33, 64}) {
                if (r != 7 && suite.op() != KEEL_OP_KEY_PROJECT) continue;
                keys_case(suite, {.dtype = dtype, .features = features, .r = r});
            }
            for (const int64_t dim : {256, 320, 512})
                keys_case(suite, {.dim = dim, .dtype = dtype, .features = features});
            keys_case(suite, {.dim = 96,
                              .dtype = dtype,
                              .features = features,
                              .begin = 5,
                              .end = 50,
                              .mode = KEEL_ROPE_INTERLEAVED,
                              .block_slots = 32});
        }
        for (int64_t dim = 1; dim <= 70; dim += suite.quick() ? 9 : 1)
            keys_case(suite, {.dim = dim, .features = features});
        for (const int64_t length : sizes(suite.quick(), {64, 128}, 32)) {
            keys_case(suite, {.lengths = {static_cast<int32_t>(length), 3},
                              .dim = 32,
                              .features = features,
                              .end = length,
                              .r = 3});
        }
        keys_case(suite, {.features = features, .begin = 12, .end = 12});
        keys_case(suite, {.lengths = {0, 0}, .features = features, .begin = 0, .end = 9});
        keys_case(suite, {.lengths = {20, 9}, .features = features, .begin = 3, .end = 500});
    }
}

void stats_case(Suite &suite, int64_t m, int64_t heads, int64_t dim, bool second, Layout layout) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    Case c;
    c.name = fmt::format("m={} heads={} dim={} second={} gap={} shift={}", m, heads, dim, second,
                         layout.gap, layout.shift);
    c.may_refuse = layout.gap != 0 || layout.shift != 0;
    const int q = c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {m, heads, dim}, layout));
    const int sum = c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {heads, dim}, layout));
    const int products =
        second ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {heads, dim, dim}, layout)) : none;
    c.absolute = {q, sum};
    c.outputs = {{sum, 4e-6, 0, false, true}};
    if (second) {
        c.absolute.push_back(products);
        c.outputs.push_back({products, 4e-6, 0, false, true});
    }
    c.call = [=](Stage &stage) {
        keel_query_stats_args a = {};
        a.h = KEEL_HEADER(keel_query_stats_args);
        a.q = stage.tensor(q);
        a.sum = stage.tensor(sum);
        a.second = stage.tensor(products);
        return stage.run(KEEL_OP_QUERY_STATS, a);
    };
    suite.check(std::move(c));
}

} // namespace

void policy_input_cases(Suite &suite) {
    if (suite.op() != KEEL_OP_QUERY_STATS) return keys_cases(suite);
    for (const int64_t dim : sizes(suite.quick(), {64, 128}, 32))
        stats_case(suite, 1 + dim % 4, 2, dim, dim % 3 != 0, {});
    for (const int64_t dim : {256, 320, 512}) stats_case(suite, 3, 2, dim, true, {});
    for (const int64_t m : {0, 1, 2, 31, 64, 130}) stats_case(suite, m, 3, 24, m % 2 == 0, {});
    for (const Layout &layout : layouts(suite.quick())) stats_case(suite, 5, 3, 21, true, layout);
}

} // namespace keel::conformance
