#include "conformance/suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace keel::conformance {
namespace {

struct Reduction {
    uint32_t window = 0;
    keel_reduce queries = KEEL_REDUCE_SUM, group = KEEL_REDUCE_SUM;
    uint32_t accumulate = 0;
};

struct AttentionShape {
    int64_t m = 1;
    int64_t group = 2;
    CacheShape cache;
    uint64_t features = KEEL_ATTENTION_CAUSAL;
    keel_dtype a = KEEL_DTYPE_F32;
    Layout layout = {};
    Reduction reduction;
    int64_t window = 7;
    bool in_place = false;
    float bad_q = 0, bad_k = 0, bad_v = 0;
    float spread = 1.0F;
};

std::string name_of(const AttentionShape &s) {
    std::string lengths;
    for (const int32_t length : s.cache.lengths)
        lengths += fmt::format("{}{}", lengths.empty() ? "" : "/", length);
    return fmt::format(
        "m={} heads={}x{} lengths={} dim={}/{} block={} k={} v={} a={} features={} gap={} "
        "shift={} reduce={}/{} w={} acc={} "
        "window={} in_place={} bad={}/{}/{}",
        s.m, s.cache.lengths.size(), s.group, lengths, s.cache.head_dim, s.cache.v_head_dim,
        s.cache.block_slots, keel_dtype_name(s.cache.k_dtype), keel_dtype_name(s.cache.v_dtype),
        keel_dtype_name(s.a), s.features, s.layout.gap, s.layout.shift, s.reduction.queries,
        s.reduction.group, s.reduction.window, s.reduction.accumulate, s.window, s.in_place,
        s.bad_q, s.bad_k, s.bad_v);
}

// Writes `bad` to the rows of one used slot in an arena (keys or values). In each row, every
// step-th element gets this value, beginning with the first element.
void poison_slot(Scene &scene, int cache, int arena, Rng &rng, float bad, int64_t step) {
    const CacheSpec &spec = scene.caches[cache];
    Tensor &rows = scene.tensors[arena];
    const auto lengths = scene.tensors[spec.lengths].integers_of(scene.tensors[spec.lengths].image);
    const auto table = scene.tensors[spec.table].integers_of(scene.tensors[spec.table].image);
    const size_t head = rng() % lengths.size();
    if (lengths[head] == 0 || keel_dtype_block(rows.dtype) != 1) return;
    const auto slot = static_cast<int64_t>(rng() % static_cast<uint64_t>(lengths[head]));
    const int32_t block = table[head * (table.size() / lengths.size()) +
                                static_cast<size_t>(slot / spec.block_slots)];
    std::vector<double> values = rows.values();
    const int64_t row =
        (block * int64_t{spec.block_slots} + slot % spec.block_slots) * rows.row_length();
    for (int64_t e = 0; e < rows.row_length(); e += step)
        values[static_cast<size_t>(row + e)] = static_cast<double>(bad);
    rows.set({values.begin(), values.end()});
}

keel_scores scores_of(const Reduction &r, const keel_tensor *out) {
    keel_scores s = {};
    s.h = KEEL_HEADER(keel_scores);
    s.out = out;
    s.window = r.window;
    s.reduce_queries = r.queries;
    s.reduce_group = r.group;
    s.accumulate = r.accumulate;
    return s;
}

int add_scores(Scene &scene, Rng &rng, const Reduction &r, const CacheShape &cache, int64_t heads,
               int64_t max_length) {
    const int64_t rows =
        r.group == KEEL_REDUCE_NONE ? heads : static_cast<int64_t>(cache.lengths.size());
    Tensor out = blank(KEEL_DTYPE_F32, {rows, max_length + 3}, {2, 0});
    if (r.accumulate != 0) {
        std::vector<float> old(static_cast<size_t>(out.elements()));
        for (float &value : old) value = 0.01F * static_cast<float>(rng() % 100);
        out.set(old);
    }
    return scene.add(std::move(out));
}

// Adds the positions of m queries, which follow the longest head. If m is odd, each head has its
// own positions. If m is even, all heads share the positions.
int add_q_positions(Scene &scene, const CacheShape &cache, int64_t m) {
    const auto kv_heads = static_cast<int64_t>(cache.lengths.size());
    const int32_t longest = *std::max_element(cache.lengths.begin(), cache.lengths.end());
    const bool per_head = m % 2 == 1;
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < m * (per_head ? kv_heads : 1); ++i)
        positions.push_back(longest + static_cast<int32_t>(i));
    return scene.add(per_head ? integer_tensor({m, kv_heads}, positions)
                              : integer_tensor({m}, positions));
}

void attention_case(Suite &suite, const AttentionShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const auto kv_heads = static_cast<int64_t>(s.cache.lengths.size());
    const int64_t heads = kv_heads * s.group;
    Case c;
    c.name = name_of(s);
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0 || s.cache.head_dim > 1024;
    const int cache = add_cache(c.scene, rng, s.cache);
    if (s.bad_k != 0)
        poison_slot(c.scene, cache, c.scene.caches[cache].k, rng, s.bad_k,
                    s.cache.head_dim); // one element each
    if (s.bad_v != 0) poison_slot(c.scene, cache, c.scene.caches[cache].v, rng, s.bad_v, 3);
    Tensor q = random_tensor(rng, s.a, {s.m, heads, s.cache.head_dim}, s.layout, s.spread);
    if (s.bad_q != 0) poison(rng, q, s.bad_q, 1);
    const int q_at = c.scene.add(std::move(q));
    const int out =
        s.in_place ? q_at : c.scene.add(blank(s.a, {s.m, heads, s.cache.v_head_dim}, s.layout));
    // The error bound in the header is not valid for logits of several hundred. In f32, logits of
    // this size have steps of 2^-16, and exp increases this error.
    const double bound = s.spread > 4 ? 1e-4 : 1e-5;
    c.outputs = {{out, bound, 8e-3, false, !s.in_place}};
    c.absolute = {c.scene.caches[cache].v};
    if (!s.in_place) c.absolute.push_back(out);
    int q_positions = none;
    if ((s.features & KEEL_ATTENTION_WINDOW) != 0)
        q_positions = add_q_positions(c.scene, s.cache, s.m);
    int lse = none;
    if ((s.features & KEEL_ATTENTION_LSE) != 0) {
        lse = c.scene.add(blank(KEEL_DTYPE_F32, {s.m, heads}, {1, 0}));
        c.outputs.push_back({lse, 1e-5, 8e-3});
    }
    int scores = none;
    if ((s.features & KEEL_ATTENTION_SCORES) != 0) {
        scores =
            add_scores(c.scene, rng, s.reduction, s.cache, heads, c.scene.caches[cache].max_length);
        c.outputs.push_back({scores, 1e-5, 8e-3});
    }
    c.call = [=](Stage &stage) {
        const keel_scores reduced = scores_of(s.reduction, stage.tensor(scores));
        keel_attention_args a = {};
        a.h = KEEL_HEADER(keel_attention_args);
        a.features = s.features;
        a.q = stage.tensor(q_at);
        a.kv = stage.cache(cache);
        a.out = stage.tensor(out);
        a.q_positions = stage.tensor(q_positions);
        a.lse = stage.tensor(lse);
        a.scores = scores == none ? nullptr : &reduced;
        a.scale = 1.0F / std::sqrt(static_cast<float>(s.cache.head_dim));
        a.softcap = (s.features & KEEL_ATTENTION_SOFTCAP) != 0 ? 3.0F : 0.0F;
        a.window = (s.features & KEEL_ATTENTION_WINDOW) != 0 ? s.window : 0;
        return stage.run(KEEL_OP_ATTENTION, a);
    };
    suite.check(std::move(c));
}

// Returns a cache that has more blocks than its longest head needs.
CacheShape spare_cache(std::vector<int32_t> lengths, uint32_t block_slots, int64_t dim = 32,
                       keel_dtype k = KEEL_DTYPE_F32, keel_dtype v = KEEL_DTYPE_F32) {
    CacheShape shape;
    shape.lengths = std::move(lengths);
    shape.block_slots = block_slots;
    shape.head_dim = shape.v_head_dim = dim;
    shape.k_dtype = k;
    shape.v_dtype = v;
    shape.spare = 5;
    return shape;
}

void length_grid(Suite &suite) {
    for (const uint32_t block : {16U, 32U, 64U}) {
        for (const int64_t length : sizes(suite.quick(), {64, 128, 256, 512}, 32)) {
            const auto n = static_cast<int32_t>(length);
            attention_case(
                suite, {.m = 1, .group = 1 + n % 4, .cache = spare_cache({n, n / 2, 0}, block)});
            attention_case(suite, {.m = std::min<int64_t>(n, 1 + n % 9),
                                   .group = 3,
                                   .cache = spare_cache({n, n}, block)});
        }
        for (const int64_t m : sizes(suite.quick(), {32, 64, 128, 256}, suite.quick() ? 8 : 32)) {
            const auto n = static_cast<int32_t>(m);
            attention_case(suite,
                           {.m = m, .group = 2, .cache = spare_cache({n, n + 21}, block, 16)});
        }
    }
    attention_case(suite, {.m = 33, .group = 4, .cache = spare_cache({600, 33}, 64, 64)});
    attention_case(suite, {.m = 1, .group = 8, .cache = spare_cache({1500}, 64, 128)});
    // There are more slots than some backends process in one piece. Narrow heads keep the run time
    // of the case short.
    for (const int64_t m : {1, 3}) {
        attention_case(suite, {.m = m, .group = 2, .cache = spare_cache({4096, 130}, 64, 16)});
        attention_case(
            suite, {.m = m,
                    .group = 2,
                    .cache = spare_cache({8300, 4097}, 64, 16),
                    .features = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_LSE | KEEL_ATTENTION_SCORES,
                    .reduction = {.group = KEEL_REDUCE_SUM}});
    }
    attention_case(
        // some queries see no slot
        suite, {.m = 7, .group = 2, .cache = spare_cache({3, 20}, 16)});
}

// Heads with more than 256 elements. For such heads, some kernels keep fewer heads at once, or
// process a head in pieces of 256. 257 is one element more than a piece.
void very_wide_heads(Suite &suite) {
    const auto both = [&](int64_t dim, keel_dtype k, keel_dtype v) {
        attention_case(suite, {.m = 1, .group = 4, .cache = spare_cache({77, 130}, 64, dim, k, v)});
        attention_case(suite, {.m = 19, .group = 2, .cache = spare_cache({83, 19}, 32, dim, k, v)});
    };
    for (const int64_t dim : {320, 512}) {
        for (const keel_dtype dtype : cache_dtypes) {
            const bool chosen = dim == 320 ? dtype == KEEL_DTYPE_F16 : dtype == KEEL_DTYPE_Q8_0;
            if (!suite.quick() || chosen) both(dim, dtype, dtype);
        }
    }
    both(257, KEEL_DTYPE_F32, KEEL_DTYPE_F32);
    CacheShape uneven = spare_cache({50, 40}, 16, 320);
    uneven.v_head_dim = 128;
    attention_case(suite, {.m = 3, .group = 2, .cache = uneven});
    attention_case(suite,
                   {.m = 5, .group = 2, .cache = spare_cache({70, 33}, 16, 512), .features = 31});
    if (suite.quick()) return;
    both(512, KEEL_DTYPE_F16, KEEL_DTYPE_Q4_0); // K and V have different dtypes
    // a backend may refuse the largest size
    for (const int64_t dim : {288, 384, 511, 513, 1000, 1056})
        both(dim, KEEL_DTYPE_F32, KEEL_DTYPE_F32);
    uneven.v_head_dim = 512;
    attention_case(suite, {.m = 3, .group = 2, .cache = uneven});
    // A case in which the slots are split into parts.
    attention_case(suite,
                   {.m = 1, .group = 2, .cache = spare_cache({1500}, 64, 512, KEEL_DTYPE_F16)});
}

void dtype_grid(Suite &suite) {
    for (const keel_dtype k : cache_dtypes) {
        for (const keel_dtype v : cache_dtypes) {
            for (const int64_t dim : {32, 64, 96, 128}) {
                if (suite.quick() && (dim == 96 || (k != v && dim == 128))) continue;
                attention_case(
                    suite, {.m = 1, .group = 4, .cache = spare_cache({77, 130}, 64, dim, k, v)});
                attention_case(
                    suite, {.m = 19, .group = 2, .cache = spare_cache({83, 19}, 32, dim, k, v)});
            }
        }
    }
    // Tests wide heads (Gemma has 256 elements), and sizes near 256.
    for (const keel_dtype dtype : cache_dtypes) {
        for (const int64_t dim : {160, 224, 256}) {
            if (suite.quick() && dim != 256) continue;
            attention_case(
                suite,
                {.m = 1, .group = 2, .cache = spare_cache({77, 130}, 64, dim, dtype, dtype)});
            attention_case(
                suite,
                {.m = 19, .group = 2, .cache = spare_cache({83, 19}, 32, dim, dtype, dtype)});
        }
    }
    very_wide_heads(suite);
    for (const int64_t dim : {129, 191, 193, 255}) {
        if (suite.quick() && dim != 255) continue;
        attention_case(suite,
                       {.m = 1 + dim % 4, .group = 2, .cache = spare_cache({70, 33}, 16, dim)});
    }
    attention_case(suite,
                   {.m = 5, .group = 2, .cache = spare_cache({70, 33}, 16, 256), .features = 31});
    for (int64_t dim = 1; dim <= 80; dim += suite.quick() ? 13 : 1) {
        attention_case(suite, {.m = 1, .group = 1, .cache = spare_cache({41}, 16, dim)});
        attention_case(suite, {.m = 5, .group = 2, .cache = spare_cache({41}, 16, dim)});
    }
    CacheShape uneven = spare_cache({50, 40}, 16, 64);
    uneven.v_head_dim = 32;
    attention_case(suite, {.m = 3, .group = 2, .cache = uneven});
    attention_case(suite, {.m = 1, .group = 2, .cache = uneven});
}

void feature_grid(Suite &suite) {
    for (uint64_t features = 0; features < 32; ++features) {
        for (const int64_t m : {1, 6, 24}) {
            attention_case(
                suite,
                {.m = m, .group = 3, .cache = spare_cache({50, 24, 33}, 16), .features = features});
        }
    }
    const uint64_t scored = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_SCORES;
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
        for (const keel_reduce group :
             {KEEL_REDUCE_NONE, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
            for (const uint32_t window : {0U, 1U, 5U, 100U}) {
                for (const int64_t m : {1, 11}) {
                    const Reduction r = {window, queries, group, window % 2};
                    attention_case(suite, {.m = m,
                                           .group = 3,
                                           .cache = spare_cache({70, 37}, 32),
                                           .features = scored,
                                           .reduction = r});
                }
            }
        }
    }
    for (const int64_t window : {1, 2, 16, 33, 1000}) {
        attention_case(suite, {.m = 17,
                               .group = 2,
                               .cache = spare_cache({65, 40}, 16),
                               .features = 3,
                               .window = window});
        attention_case(suite, {.m = 1,
                               .group = 2,
                               .cache = spare_cache({65, 40}, 16),
                               .features = 3,
                               .window = window});
    }
}

void odd_values(Suite &suite) {
    for (const keel_dtype a : suite.activations()) {
        for (const Layout &layout : layouts(suite.quick())) {
            attention_case(
                suite,
                {.m = 5, .group = 2, .cache = spare_cache({40, 33}, 16), .a = a, .layout = layout});
            attention_case(suite, {.m = 1,
                                   .group = 2,
                                   .cache = spare_cache({40, 33}, 16),
                                   .a = a,
                                   .layout = layout,
                                   .in_place = true});
        }
        for (const float bad : {std::nanf(""), INFINITY}) {
            attention_case(
                suite,
                {.m = 6, .group = 2, .cache = spare_cache({40, 33}, 16), .a = a, .bad_q = bad});
            attention_case(
                suite,
                {.m = 1, .group = 2, .cache = spare_cache({40, 33}, 16), .a = a, .bad_q = bad});
        }
        attention_case(suite, {.m = 20,
                               .group = 2,
                               .cache = spare_cache({40, 33}, 16),
                               .a = a,
                               .bad_k = std::nanf("")});
        attention_case(suite, {.m = 1,
                               .group = 2,
                               .cache = spare_cache({40, 33}, 16),
                               .a = a,
                               .bad_k = std::nanf("")});
    }
    // The values of slots that a row does not see must not change the row's result. A row does not
    // see a slot after the row's own position or outside of the row's window.
    for (const float bad : {std::nanf(""), INFINITY}) {
        for (const keel_dtype v : {KEEL_DTYPE_F32, KEEL_DTYPE_F16}) {
            for (const uint64_t features :
                 {uint64_t{KEEL_ATTENTION_CAUSAL},
                  uint64_t{KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW}}) {
                for (const int64_t m : {1, 5, 40}) {
                    attention_case(suite, {.m = m,
                                           .group = 2,
                                           .cache = spare_cache({40, 90}, 16, 32, v, v),
                                           .features = features,
                                           .bad_v = bad});
                }
            }
        }
    }
    // Tests logits of several hundred: exp would overflow if the kernel did not subtract the
    // maximum.
    attention_case(suite,
                   {.m = 9, .group = 2, .cache = spare_cache({140, 33}, 16), .spread = 60.0F});
    attention_case(suite,
                   {.m = 1, .group = 2, .cache = spare_cache({140, 33}, 16), .spread = 60.0F});
}

} // namespace

void attention_cases(Suite &suite) {
    length_grid(suite);
    dtype_grid(suite);
    feature_grid(suite);
    odd_values(suite);
}

namespace {

struct ScoresShape {
    int64_t m = 4, group = 2;
    CacheShape cache;
    uint64_t features = KEEL_SCORES_CAUSAL;
    Reduction reduction;
    std::vector<int32_t> ranges = {3, 9, 20, 31};
    keel_dtype a = KEEL_DTYPE_F32;
    Layout layout = {};
    int64_t window = 7;
    float bad_q = 0;
};

void scores_case(Suite &suite, const ScoresShape &s) {
    if (!suite.next()) return;
    Rng &rng = suite.rng();
    const int64_t heads = static_cast<int64_t>(s.cache.lengths.size()) * s.group;
    Case c;
    c.name = name_of({.m = s.m,
                      .group = s.group,
                      .cache = s.cache,
                      .features = s.features,
                      .a = s.a,
                      .layout = s.layout,
                      .reduction = s.reduction,
                      .window = s.window,
                      .bad_q = s.bad_q});
    c.may_refuse = s.layout.gap != 0 || s.layout.shift != 0;
    const int cache = add_cache(c.scene, rng, s.cache);
    const int64_t max_length = c.scene.caches[cache].max_length;
    Tensor queries = random_tensor(rng, s.a, {s.m, heads, s.cache.head_dim}, s.layout);
    if (s.bad_q != 0) poison(rng, queries, s.bad_q, 1);
    const int q = c.scene.add(std::move(queries));
    const bool ranged = (s.features & KEEL_SCORES_RANGES) != 0;
    const bool weighted = (s.features & KEEL_SCORES_WEIGHTS) != 0;
    const int ranges =
        ranged
            ? c.scene.add(integer_tensor({static_cast<int64_t>(s.ranges.size()) / 2, 2}, s.ranges))
            : none;
    const int weights =
        weighted ? c.scene.add(random_tensor(
                       rng, KEEL_DTYPE_F32,
                       {static_cast<int64_t>(s.cache.lengths.size()), max_length + 2}, {3, 0}))
                 : none;
    const int q_positions =
        (s.features & KEEL_SCORES_WINDOW) != 0 ? add_q_positions(c.scene, s.cache, s.m) : none;
    const int out = add_scores(c.scene, rng, s.reduction, s.cache, heads, max_length);
    c.outputs = {{out, 1e-5}};
    if ((s.features & KEEL_SCORES_LOGITS) != 0) {
        c.outputs[0].term_sums = true;
        c.absolute = {q, c.scene.caches[cache].k, out};
        if (weighted) c.absolute.push_back(weights);
    }
    c.call = [=](Stage &stage) {
        const keel_scores reduced = scores_of(s.reduction, stage.tensor(out));
        keel_attention_scores_args a = {};
        a.h = KEEL_HEADER(keel_attention_scores_args);
        a.features = s.features;
        a.q = stage.tensor(q);
        a.kv = stage.cache(cache);
        a.ranges = stage.tensor(ranges);
        a.weights = stage.tensor(weights);
        a.scores = &reduced;
        a.scale = 0.2F;
        a.q_positions = stage.tensor(q_positions);
        a.window = (s.features & KEEL_SCORES_WINDOW) != 0 ? s.window : 0;
        // This cap is so low that it changes the logits of random tensors.
        a.softcap = (s.features & KEEL_SCORES_SOFTCAP) != 0 ? 0.5F : 0.0F;
        return stage.run(KEEL_OP_ATTENTION_SCORES, a);
    };
    suite.check(std::move(c));
}

// Soft-capped logits and a model's attention window, with every combination of the other feature
// bits.
void capped_and_windowed(Suite &suite) {
    constexpr keel_reduce of_queries[] = {KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX};
    constexpr keel_reduce of_group[] = {KEEL_REDUCE_NONE, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN,
                                        KEEL_REDUCE_MAX};
    for (uint64_t features = KEEL_SCORES_SOFTCAP; features < 64; ++features) {
        for (const keel_reduce queries : of_queries) {
            if (suite.quick() && queries != of_queries[features % 3]) continue;
            for (const int64_t m : {1, 6, 7}) {
                const keel_reduce group = of_group[(features + static_cast<uint64_t>(m)) % 4];
                const Reduction r = {m == 7 ? 3U : 0U, queries, group, features % 3 == 0};
                scores_case(suite, {.m = m,
                                    .group = 3,
                                    .cache = spare_cache({50, 26}, 16),
                                    .features = features,
                                    .reduction = r});
            }
        }
        scores_case(suite, {.m = 9,
                            .group = 1,
                            .cache = spare_cache({4, 0, 9}, 16),
                            .features = features,
                            .ranges = {0, 2, 5, 1000}});
        scores_case(suite,
                    {.m = 0, .group = 2, .cache = spare_cache({20, 26}, 16), .features = features});
    }
    // Tests windows that hide no slot, whole tiles of slots, or all slots.
    const uint64_t window = KEEL_SCORES_CAUSAL | KEEL_SCORES_WINDOW;
    for (const int64_t size : {0, 1, 33, 100, 1000})
        for (const int64_t m : {1, 2, 40})
            for (const uint64_t features :
                 {window, window | KEEL_SCORES_SOFTCAP, window | KEEL_SCORES_RANGES})
                scores_case(suite, {.m = m,
                                    .group = 3,
                                    .cache = spare_cache({300, 70, 0}, 16),
                                    .features = features,
                                    .reduction = {0, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, 1},
                                    .ranges = {2, 9, 200, 1000},
                                    .window = size});
    // A NaN in a query must not change slots outside of the query's window.
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MAX})
        for (const int64_t m : {1, 6})
            scores_case(suite, {.m = m,
                                .group = 2,
                                .cache = spare_cache({140, 33}, 16),
                                .features = window,
                                .reduction = {0, queries, KEEL_REDUCE_MEAN, 0},
                                .bad_q = std::nanf("")});
    for (const keel_dtype k : cache_dtypes)
        scores_case(suite, {.m = 5,
                            .group = 4,
                            .cache = spare_cache({130, 77}, 64, 256, k),
                            .features = window | KEEL_SCORES_SOFTCAP,
                            .window = 40});
}

} // namespace

void attention_scores_cases(Suite &suite) {
    for (uint64_t features = 0; features < 16; ++features) {
        for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
            for (const keel_reduce group :
                 {KEEL_REDUCE_NONE, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
                for (const int64_t m : {1, 7}) {
                    const Reduction r = {m == 7 && group == KEEL_REDUCE_MAX ? 3U : 0U, queries,
                                         group, m == 7 && features % 3 == 0};
                    scores_case(suite, {.m = m,
                                        .group = 3,
                                        .cache = spare_cache({50, 26}, 16),
                                        .features = features,
                                        .reduction = r});
                }
            }
        }
        scores_case(suite,
                    {.m = 0, .group = 2, .cache = spare_cache({20, 26}, 16), .features = features});
        scores_case(suite, {.m = 9,
                            .group = 1,
                            .cache = spare_cache({4, 0, 9}, 16),
                            .features = features,
                            .ranges = {0, 2, 5, 1000}});
    }
    // Tests ranges that exclude whole tiles of slots.
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MAX})
        for (const int64_t m : {1, 40})
            scores_case(suite,
                        {.m = m,
                         .group = 3,
                         .cache = spare_cache({300, 70, 0}, 16),
                         .features = KEEL_SCORES_CAUSAL | KEEL_SCORES_RANGES | KEEL_SCORES_WEIGHTS,
                         .reduction = {0, queries, KEEL_REDUCE_MEAN, 1},
                         .ranges = {2, 9, 200, 1000}});
    for (const int64_t length : sizes(suite.quick(), {64, 128, 256, 512}, 32)) {
        const auto n = static_cast<int32_t>(length);
        scores_case(suite,
                    {.m = 1 + n % 6, .group = 1 + n % 3, .cache = spare_cache({n, n / 3}, 32)});
    }
    for (const keel_dtype k : cache_dtypes)
        for (const int64_t dim : {64, 256, 320, 512})
            scores_case(suite, {.m = 5, .group = 4, .cache = spare_cache({130, 77}, 64, dim, k)});
    for (const keel_dtype a : suite.activations()) {
        for (const Layout &layout : layouts(suite.quick()))
            scores_case(suite, {.cache = spare_cache({50, 26}, 16), .a = a, .layout = layout});
    }
    capped_and_windowed(suite);
}

} // namespace keel::conformance
