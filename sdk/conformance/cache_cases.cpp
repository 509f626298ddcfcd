#include "conformance/rope_cases.hpp"
#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace keel::conformance {
namespace {

CacheShape cache_of(std::vector<int32_t> lengths, uint32_t block_slots, int64_t dim, keel_dtype k,
                    keel_dtype v) {
    CacheShape shape;
    shape.lengths = std::move(lengths);
    shape.block_slots = block_slots;
    shape.head_dim = shape.v_head_dim = dim;
    shape.k_dtype = k;
    shape.v_dtype = v;
    return shape;
}

std::string text_of(const CacheShape &s) {
    std::string lengths;
    for (const int32_t length : s.lengths)
        lengths += fmt::format("{}{}", lengths.empty() ? "" : "/", length);
    return fmt::format("lengths={} block={} dim={} k={} v={}", lengths, s.block_slots, s.head_dim,
                       keel_dtype_name(s.k_dtype), keel_dtype_name(s.v_dtype));
}

// Adds the tensors of a cache to the outputs of a case whose op writes rows into the cache.
void add_cache_outputs(Case &c, int cache, double bound) {
    const CacheSpec &spec = c.scene.caches[cache];
    c.outputs.push_back({spec.k, bound});
    c.outputs.push_back({spec.v, 0});
    c.outputs.push_back({spec.positions, 0});
}

// ---- kv_append ---------------------------------------------------------------------------------

struct AppendShape {
    int64_t m = 3;
    CacheShape cache;
    keel_dtype a = KEEL_DTYPE_F32;
    Layout layout = {};
    bool per_head = false;
    float bad = 0;
};

void append_case(Suite &suite, const AppendShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const auto heads = static_cast<int64_t>(s.cache.lengths.size());
    Case c;
    c.name = fmt::format("m={} {} a={} gap={} shift={} per_head={} bad={}", s.m, text_of(s.cache),
                         keel_dtype_name(s.a), s.layout.gap, s.layout.shift, s.per_head, s.bad);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    CacheShape shape = s.cache;
    const int cache = add_cache(c.scene, rng, shape);
    Tensor k_tensor = random_tensor(rng, s.a, {s.m, heads, shape.head_dim}, s.layout);
    if (s.bad != 0) poison(rng, k_tensor, s.bad, 2);
    const int k = c.scene.add(std::move(k_tensor));
    const int v = c.scene.add(random_tensor(rng, s.a, {s.m, heads, shape.v_head_dim}, s.layout));
    const int positions = add_positions(c.scene, rng, s.m, heads, s.per_head, 100000);
    add_cache_outputs(c, cache, 0);
    c.call = [=](Stage &stage) {
        keel_kv_append_args a = {};
        a.h = KEEL_HEADER(keel_kv_append_args);
        a.k = stage.tensor(k);
        a.v = stage.tensor(v);
        a.positions = stage.tensor(positions);
        a.kv = stage.cache(cache);
        return stage.run(KEEL_OP_KV_APPEND, a);
    };
    suite.check(std::move(c));
}

void append_cases(Suite &suite) {
    for (const keel_dtype k : cache_dtypes) {
        for (const keel_dtype v : cache_dtypes) {
            append_case(suite, {.m = 5, .cache = cache_of({5, 21, 40}, 16, 64, k, v)});
            append_case(suite,
                        {.m = 1, .cache = cache_of({1, 17, 33}, 16, 32, k, v), .per_head = true});
        }
        append_case(suite, {.m = 70, .cache = cache_of({70, 130}, 64, 32, k, k)});
        for (const keel_dtype a : suite.activations()) {
            for (const Layout &layout : layouts(suite.quick()))
                append_case(
                    suite,
                    {.m = 4, .cache = cache_of({9, 4}, 16, 96, k, k), .a = a, .layout = layout});
            for (const float bad : {std::nanf(""), INFINITY})
                append_case(suite,
                            {.m = 4, .cache = cache_of({9, 4}, 16, 32, k, k), .a = a, .bad = bad});
        }
    }
    for (const keel_dtype k : cache_dtypes)
        for (const int64_t dim : {256, 320, 512})
            append_case(suite, {.m = 5, .cache = cache_of({5, 21}, 16, dim, k, k)});
    for (int64_t dim = 1; dim <= 70; dim += suite.quick() ? 11 : 1)
        append_case(suite,
                    {.m = 3, .cache = cache_of({3, 19}, 16, dim, KEEL_DTYPE_F16, KEEL_DTYPE_F32)});
    append_case(suite, {.m = 6,
                        .cache = cache_of({2, 8}, 16, 32, KEEL_DTYPE_F32,
                                          KEEL_DTYPE_F32)}); // tokens whose slots are negative
    append_case(suite, {.m = 0, .cache = cache_of({2, 8}, 16, 32, KEEL_DTYPE_F32, KEEL_DTYPE_F32)});
}

// ---- qkv_prepare -------------------------------------------------------------------------------

struct QkvShape {
    int64_t m = 3, group = 2;
    CacheShape cache;
    int64_t rot = 0; // 0: the whole head is rotated
    uint64_t features = 0;
    keel_rope_mode mode = KEEL_ROPE_HALF_SPLIT;
    keel_dtype a = KEEL_DTYPE_F32;
    Layout layout = {};
    bool per_head = false, in_place = false, only_q = false;
};

void qkv_case(Suite &suite, const QkvShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const auto kv_heads = static_cast<int64_t>(s.cache.lengths.size());
    const int64_t dim = s.cache.head_dim;
    const int64_t rot = s.rot != 0 ? s.rot : dim / 2 * 2;
    Case c;
    c.name = fmt::format(
        "m={} group={} {} rot={} mode={} a={} features={} gap={} shift={} per_head={} in_place={}",
        s.m, s.group, text_of(s.cache), rot, s.mode, keel_dtype_name(s.a), s.features, s.layout.gap,
        s.layout.shift, s.per_head, s.in_place);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    const std::vector<int64_t> q_shape = {s.m, kv_heads * s.group, dim};
    const std::vector<int64_t> k_shape = {s.m, kv_heads, dim};
    const int cache = add_cache(c.scene, rng, s.cache);
    const int q = c.scene.add(random_tensor(rng, s.a, q_shape, s.layout));
    const int k = c.scene.add(random_tensor(rng, s.a, k_shape, s.layout));
    const int v =
        c.scene.add(random_tensor(rng, s.a, {s.m, kv_heads, s.cache.v_head_dim}, s.layout));
    const int positions = add_positions(c.scene, rng, s.m, kv_heads, s.per_head, 47);
    const TableSpec tables = add_tables(c.scene, 47, rot, s.mode);
    const bool norm = (s.features & KEEL_QKV_NORM) != 0;
    const int q_norm = norm ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {dim})) : none;
    const int k_norm = norm ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {dim})) : none;
    const int q_out = s.in_place ? q : c.scene.add(blank(s.a, q_shape, s.layout));
    const bool copies = (s.features & KEEL_QKV_UNROTATED) != 0;
    const int q_copy = copies ? c.scene.add(blank(KEEL_DTYPE_F32, q_shape)) : none;
    const int k_copy = copies && !s.only_q ? c.scene.add(blank(KEEL_DTYPE_F32, k_shape)) : none;
    c.outputs = {{q_out, 4e-6}};
    if (q_copy != none) c.outputs.push_back({q_copy, 4e-6});
    if (k_copy != none) c.outputs.push_back({k_copy, 4e-6});
    add_cache_outputs(c, cache, 4e-6);
    c.call = [=](Stage &stage) {
        const keel_rope_tables placed = place(tables, stage);
        keel_qkv_args a = {};
        a.h = KEEL_HEADER(keel_qkv_args);
        a.features = s.features;
        a.q = stage.tensor(q);
        a.k = stage.tensor(k);
        a.v = stage.tensor(v);
        a.positions = stage.tensor(positions);
        a.tables = &placed;
        a.q_norm = stage.tensor(q_norm);
        a.k_norm = stage.tensor(k_norm);
        a.kv = stage.cache(cache);
        a.q_out = stage.tensor(q_out);
        a.q_unrotated = stage.tensor(q_copy);
        a.k_unrotated = stage.tensor(k_copy);
        a.eps = 1e-6F;
        return stage.run(KEEL_OP_QKV_PREPARE, a);
    };
    suite.check(std::move(c));
}

void qkv_cases(Suite &suite) {
    constexpr keel_dtype f32 = KEEL_DTYPE_F32;
    for (const keel_rope_mode mode : {KEEL_ROPE_HALF_SPLIT, KEEL_ROPE_INTERLEAVED}) {
        for (uint64_t features = 0; features < 4; ++features) {
            for (const keel_dtype k : cache_dtypes) {
                const keel_dtype v = k == KEEL_DTYPE_Q8_0 ? keel_dtype{KEEL_DTYPE_Q4_0} : k;
                qkv_case(suite, {.m = 5,
                                 .group = 3,
                                 .cache = cache_of({5, 20}, 16, 64, k, v),
                                 .features = features,
                                 .mode = mode,
                                 .per_head = true});
                qkv_case(suite, {.m = 1,
                                 .group = 4,
                                 .cache = cache_of({33, 1}, 32, 128, k, v),
                                 .features = features,
                                 .mode = mode,
                                 .in_place = true});
            }
            for (int64_t dim = 2; dim <= 70; dim += suite.quick() ? 13 : 2) {
                qkv_case(suite, {.m = 2,
                                 .group = 1,
                                 .cache = cache_of({18}, 16, dim, f32, f32),
                                 .features = features,
                                 .mode = mode,
                                 .only_q = true});
            }
            for (const int64_t dim : {320, 512}) {
                qkv_case(suite, {.m = 3,
                                 .group = 2,
                                 .cache = cache_of({18, 5}, 16, dim, f32, KEEL_DTYPE_Q8_0),
                                 .features = features,
                                 .mode = mode});
            }
            qkv_case(suite, {.m = 4,
                             .group = 2,
                             .cache = cache_of({18, 4, 9}, 16, 80, f32, f32),
                             .rot = 20,
                             .features = features,
                             .mode = mode});
        }
        for (const keel_dtype a : suite.activations()) {
            for (const Layout &layout : layouts(suite.quick())) {
                qkv_case(suite, {.m = 3,
                                 .group = 2,
                                 .cache = cache_of({18, 4}, 16, 32, KEEL_DTYPE_F16, f32),
                                 .mode = mode,
                                 .a = a,
                                 .layout = layout});
            }
        }
    }
    qkv_case(suite, {.m = 67,
                     .group = 2,
                     .cache = cache_of({100, 67}, 64, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16)});
    qkv_case(suite, {.m = 0, .group = 2, .cache = cache_of({10, 7}, 16, 32, f32, f32)});
}

// ---- kv_gather ---------------------------------------------------------------------------------

void gather_case(Suite &suite, const CacheShape &shape, bool same_view, uint32_t sides,
                 int keep_of_8) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const auto heads = static_cast<int64_t>(shape.lengths.size());
    Case c;
    c.name = fmt::format("{} same_view={} sides={} keep={}/8", text_of(shape), same_view, sides,
                         keep_of_8);
    const int from = add_cache(c.scene, rng, shape);
    CacheShape target = shape;
    target.empty = true;
    const int to = same_view ? from : add_cache(c.scene, rng, target);
    const int32_t n = *std::max_element(shape.lengths.begin(), shape.lengths.end()) + 2;
    std::vector<int32_t> index(static_cast<size_t>(heads * n), -1);
    std::vector<int32_t> count;
    for (int64_t h = 0; h < heads; ++h) {
        int32_t kept = 0;
        for (int32_t slot = 0; slot < shape.lengths[static_cast<size_t>(h)]; ++slot) {
            if (static_cast<int>(rng() % 8) < keep_of_8)
                index[static_cast<size_t>(h * n + kept++)] = slot;
        }
        count.push_back(kept);
    }
    const int index_at = c.scene.add(integer_tensor({heads, n}, index, {2, 1}));
    const int count_at = c.scene.add(integer_tensor({heads}, count));
    std::vector<int> side_places;
    for (uint32_t i = 0; i < sides; ++i) {
        if (i % 2 == 0) {
            side_places.push_back(
                c.scene.add(random_tensor(rng, KEEL_DTYPE_F32, {heads, n + 3}, {1, 0})));
        } else {
            std::vector<int32_t> values(static_cast<size_t>(heads * n));
            for (int32_t &value : values) value = static_cast<int32_t>(rng() % 1000);
            side_places.push_back(c.scene.add(integer_tensor({heads, n}, values)));
        }
        c.outputs.push_back({side_places.back(), 0});
    }
    add_cache_outputs(c, to, 0);
    c.call = [=](Stage &stage) {
        std::vector<const keel_tensor *> pointers;
        for (const int place : side_places) pointers.push_back(stage.tensor(place));
        keel_kv_gather_args a = {};
        a.h = KEEL_HEADER(keel_kv_gather_args);
        a.from = stage.cache(from);
        a.to = stage.cache(to);
        a.index = stage.tensor(index_at);
        a.count = stage.tensor(count_at);
        a.sides = pointers.empty() ? nullptr : pointers.data();
        a.n_sides = sides;
        return stage.run(KEEL_OP_KV_GATHER, a);
    };
    suite.check(std::move(c));
}

void gather_cases(Suite &suite) {
    for (const keel_dtype k : cache_dtypes) {
        for (const keel_dtype v : cache_dtypes) {
            for (const bool same : {true, false})
                gather_case(suite, cache_of({40, 7, 65}, 16, 32, k, v), same, 2, 4);
        }
    }
    for (const int64_t dim : {256, 320, 512})
        gather_case(suite, cache_of({40, 65}, 16, dim, KEEL_DTYPE_Q8_0, KEEL_DTYPE_F16), true, 1,
                    4);
    for (const uint32_t block : {16U, 32U, 64U}) {
        for (const bool same : {true, false}) {
            for (const int keep : {0, 1, 4, 7, 8})
                gather_case(suite,
                            cache_of({130, 63, 0, 64}, block, 17, KEEL_DTYPE_F16, KEEL_DTYPE_F32),
                            same, keep % 4, keep);
        }
    }
}

// ---- kv_rerotate -------------------------------------------------------------------------------

void rerotate_case(Suite &suite, const CacheShape &shape, int64_t rot, keel_rope_mode mode,
                   bool from_source, int64_t begin, int64_t end) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const auto heads = static_cast<int64_t>(shape.lengths.size());
    Case c;
    c.name = fmt::format("{} rot={} mode={} source={} range={}..{}", text_of(shape), rot, mode,
                         from_source, begin, end);
    const int cache = add_cache(c.scene, rng, shape);
    const TableSpec tables = add_tables(c.scene, 23, rot, mode);
    const int64_t slots =
        std::max(end, int64_t{*std::max_element(shape.lengths.begin(), shape.lengths.end())});
    std::vector<int32_t> rows(static_cast<size_t>(heads * slots));
    std::vector<int32_t> positions(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<int32_t>(rng() % 24) - 1;
        positions[i] = static_cast<int32_t>(rng() % 5000);
    }
    const int row_at = c.scene.add(integer_tensor({heads, slots}, rows, {1, 0}));
    const int positions_at = c.scene.add(integer_tensor({heads, slots}, positions, {0, 1}));
    const int source =
        from_source ? c.scene.add(random_tensor(rng, KEEL_DTYPE_F32,
                                                {heads, end - begin, shape.head_dim}, {4, 0}))
                    : none;
    c.outputs = {{c.scene.caches[cache].k, 4e-6}, {c.scene.caches[cache].positions, 0}};
    c.call = [=](Stage &stage) {
        const keel_rope_tables placed = place(tables, stage);
        keel_kv_rerotate_args a = {};
        a.h = KEEL_HEADER(keel_kv_rerotate_args);
        a.features = from_source ? uint64_t{KEEL_REROTATE_SOURCE} : 0;
        a.kv = stage.cache(cache);
        a.tables = &placed;
        a.row = stage.tensor(row_at);
        a.new_positions = stage.tensor(positions_at);
        a.source = stage.tensor(source);
        a.begin = begin;
        a.end = end;
        return stage.run(KEEL_OP_KV_REROTATE, a);
    };
    if (begin < 0 || begin > end) return suite.check_refused(std::move(c));
    suite.check(std::move(c));
}

void rerotate_cases(Suite &suite) {
    for (const keel_rope_mode mode : {KEEL_ROPE_HALF_SPLIT, KEEL_ROPE_INTERLEAVED}) {
        for (const bool source : {false, true}) {
            for (const keel_dtype k : cache_dtypes) {
                rerotate_case(suite, cache_of({40, 7, 65}, 16, 64, k, KEEL_DTYPE_F32), 64, mode,
                              source, 0, 65);
                rerotate_case(suite, cache_of({40, 7, 65}, 32, 96, k, KEEL_DTYPE_Q8_0), 32, mode,
                              source, 5, 50);
            }
            for (const int64_t dim : {256, 320, 512}) {
                rerotate_case(suite, cache_of({40, 65}, 32, dim, KEEL_DTYPE_F16, KEEL_DTYPE_F16),
                              dim, mode, source, 3, 60);
            }
            for (int64_t dim = 2; dim <= 70; dim += suite.quick() ? 16 : 2) {
                rerotate_case(suite, cache_of({20, 33}, 16, dim, KEEL_DTYPE_F32, KEEL_DTYPE_F32),
                              dim, mode, source, 1, 100);
            }
            rerotate_case(suite, cache_of({20, 33}, 16, 32, KEEL_DTYPE_F32, KEEL_DTYPE_F32), 32,
                          mode, source, 9, 9);
            rerotate_case(suite, cache_of({20, 0}, 16, 32, KEEL_DTYPE_F32, KEEL_DTYPE_F32), 0, mode,
                          source, 0, 20);
        }
    }
    for (const auto &[begin, end] : {std::pair(-3, 5), {9, 4}}) // tests empty and invalid ranges
        rerotate_case(suite, cache_of({20, 33}, 16, 32, KEEL_DTYPE_F32, KEEL_DTYPE_F32), 32,
                      KEEL_ROPE_HALF_SPLIT, false, begin, end);
}

} // namespace

void cache_cases(Suite &suite) {
    switch (suite.op()) {
    case KEEL_OP_KV_APPEND: return append_cases(suite);
    case KEEL_OP_QKV_PREPARE: return qkv_cases(suite);
    case KEEL_OP_KV_GATHER: return gather_cases(suite);
    case KEEL_OP_KV_REROTATE: return rerotate_cases(suite);
    default: suite.fail("no cases for this op"); return;
    }
}

} // namespace keel::conformance
