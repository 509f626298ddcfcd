#include "reference/naive_attention.hpp"

using namespace keel::test;

namespace {

constexpr int64_t score_slots = 16;

// Reduces number(i, h, j) as keel_scores defines: first over the queries, then over the heads of a
// group.
Values reduced(const std::function<double(int64_t i, int64_t h, int64_t j)> &number,
               const BenchCache &cache, const Values &old, int64_t m, int64_t heads,
               keel_reduce queries, keel_reduce group, int64_t window, bool accumulate) {
    const int64_t per = heads / cache.heads;
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, m - window);
    const int64_t rows = group == KEEL_REDUCE_NONE ? heads : cache.heads;
    Values out = old;
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t kv = group == KEEL_REDUCE_NONE ? row / per : row;
        for (int64_t j = 0; j < cache.length(kv); ++j) {
            Values of_heads;
            for (int64_t h = group == KEEL_REDUCE_NONE ? row : kv * per;
                 h < (group == KEEL_REDUCE_NONE ? row + 1 : (kv + 1) * per); ++h) {
                Values of_queries;
                for (int64_t i = first; i < m; ++i) of_queries.push_back(number(i, h, j));
                double sum = 0;
                for (const double value : of_queries) sum += value;
                if (queries == KEEL_REDUCE_MEAN) sum /= static_cast<double>(m - first);
                of_heads.push_back(queries == KEEL_REDUCE_MAX
                                       ? *std::max_element(of_queries.begin(), of_queries.end())
                                       : sum);
            }
            double value = 0;
            for (const double head : of_heads) value += head;
            if (group == KEEL_REDUCE_MEAN) value /= static_cast<double>(of_heads.size());
            if (group == KEEL_REDUCE_MAX)
                value = *std::max_element(of_heads.begin(), of_heads.end());
            double &place = out[static_cast<size_t>(row * score_slots + j)];
            if (!accumulate)
                place = value;
            else
                place = queries == KEEL_REDUCE_MAX ? std::max(place, value) : place + value;
        }
    }
    return out;
}

keel_scores scores_of(const keel_tensor *out, keel_reduce queries, keel_reduce group,
                      uint32_t window, bool accumulate) {
    keel_scores s = {};
    s.h = KEEL_HEADER(keel_scores);
    s.out = out;
    s.window = window;
    s.reduce_queries = queries;
    s.reduce_group = group;
    s.accumulate = accumulate ? 1 : 0;
    return s;
}

} // namespace

TEST_CASE("scores are reduced over queries, then over the group, as a by-product and composed") {
    Bench bench;
    const BenchCache cache(bench, {9, 5}, 6, 6, 1);
    const int64_t m = 5, heads = 6;
    const Values q = random_values(static_cast<size_t>(m * heads * 6), 2);
    const auto *q_tensor = bench.floats({m, heads, 6}, q);
    const NaiveAttention naive{cache, q, m, heads, 0.25, causal(cache, m)};
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
        for (const keel_reduce group :
             {KEEL_REDUCE_NONE, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
            for (const uint32_t window : {0U, 2U, 50U}) {
                const bool accumulate = window == 2;
                const int64_t rows = group == KEEL_REDUCE_NONE ? heads : 2;
                const Values old(static_cast<size_t>(rows * score_slots), 0.125);
                const Values want = reduced(
                    [&](int64_t i, int64_t h, int64_t j) { return naive.probability(i, h, j); },
                    cache, old, m, heads, queries, group, window, accumulate);
                const keel_scores by_product = scores_of(bench.floats({rows, score_slots}, old),
                                                         queries, group, window, accumulate);
                auto a =
                    args_of<keel_attention_args>(KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_SCORES);
                a.q = q_tensor;
                a.kv = &cache.view;
                a.out = bench.blank({m, heads, 6});
                a.scores = &by_product;
                a.scale = 0.25F;
                REQUIRE(bench.backend().attention(bench.ctx(), &a) == KEEL_OK);
                require_close(bench.read(by_product.out), want);

                const keel_scores composed = scores_of(bench.floats({rows, score_slots}, old),
                                                       queries, group, window, accumulate);
                auto s = args_of<keel_attention_scores_args>(KEEL_SCORES_CAUSAL);
                s.q = q_tensor;
                s.kv = &cache.view;
                s.scores = &composed;
                s.scale = 0.25F;
                REQUIRE(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_OK);
                require_close(bench.read(composed.out), want);
            }
        }
    }
}

TEST_CASE("ranges have their own normalizer and score_slots outside get 0") {
    Bench bench;
    const BenchCache cache(bench, {10}, 4, 4, 3);
    const Values q = random_values(2 * 4, 4);
    const auto inside = [](int64_t j) { return (j >= 1 && j < 3) || j >= 7; };
    NaiveAttention naive{cache, q, 2, 1, 0.25, everything()};
    naive.sees = [&](int64_t, int64_t, int64_t j) { return inside(j); };
    const Values weights = random_values(score_slots, 5);
    for (const bool weighted : {false, true}) {
        const keel_scores scores =
            scores_of(bench.floats({1, score_slots}, Values(score_slots, 9.0)), KEEL_REDUCE_SUM,
                      KEEL_REDUCE_SUM, 0, false);
        auto s = args_of<keel_attention_scores_args>(KEEL_SCORES_RANGES |
                                                     (weighted ? KEEL_SCORES_WEIGHTS : 0));
        s.q = bench.floats({2, 1, 4}, q);
        s.kv = &cache.view;
        s.ranges = bench.ints({2, 2}, {1, 3, 7, 10});
        s.weights = weighted ? bench.floats({1, score_slots}, weights) : nullptr;
        s.scores = &scores;
        s.scale = 0.25F;
        REQUIRE(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_OK);
        Values want(score_slots, 9.0); // elements after the length do not change
        for (int64_t j = 0; j < 10; ++j) {
            want[static_cast<size_t>(j)] =
                (naive.probability(0, 0, j) + naive.probability(1, 0, j)) *
                (weighted ? weights[static_cast<size_t>(j)] : 1.0);
        }
        require_close(bench.read(scores.out), want);
    }
}

TEST_CASE("scores of soft-capped logits under a window agree with attention") {
    Bench bench;
    const BenchCache cache(bench, {10, 7}, 6, 6, 8); // every third position is left out
    const int64_t m = 3, heads = 4;
    const Values q = random_values(static_cast<size_t>(m * heads * 6), 9);
    const Ints at = {12, 13, 14};
    NaiveAttention naive{cache, q, m, heads, 0.25, everything(), 0.5};
    naive.sees = [&](int64_t i, int64_t head, int64_t j) {
        const int32_t position = cache.positions[static_cast<size_t>(head)][static_cast<size_t>(j)];
        return j <= cache.length(head) - m + i && at[static_cast<size_t>(i)] - position < 6;
    };
    for (const uint64_t features : {KEEL_SCORES_CAUSAL | KEEL_SCORES_WINDOW | KEEL_SCORES_SOFTCAP,
                                    KEEL_SCORES_CAUSAL | KEEL_SCORES_WINDOW}) {
        naive.softcap = (features & KEEL_SCORES_SOFTCAP) != 0 ? 0.5 : 0;
        const Values old(static_cast<size_t>(2 * score_slots), 0.125);
        const keel_scores scores = scores_of(bench.floats({2, score_slots}, old), KEEL_REDUCE_MEAN,
                                             KEEL_REDUCE_SUM, 2, true);
        auto s = args_of<keel_attention_scores_args>(features);
        s.q = bench.floats({m, heads, 6}, q);
        s.kv = &cache.view;
        s.scores = &scores;
        s.scale = 0.25F;
        s.q_positions = bench.ints({m}, at);
        s.window = 6;
        s.softcap = 0.5F;
        REQUIRE(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_OK);
        require_close(bench.read(scores.out),
                      reduced(
                          [&](int64_t i, int64_t h, int64_t j) {
                              const double p = naive.probability(i, h, j);
                              return std::isnan(p) ? 0 : p; // the query sees no slot
                          },
                          cache, old, m, heads, KEEL_REDUCE_MEAN, KEEL_REDUCE_SUM, 2, true));
    }
}

TEST_CASE("a capped logit counts for the queries whose window has the slot") {
    Bench bench;
    const BenchCache cache(bench, {6}, 4, 4, 6);
    const int64_t m = 2;
    const Values q = random_values(static_cast<size_t>(m * 4), 7);
    const NaiveAttention naive{cache, q, m, 1, 0.5, everything(), 0.5};
    const int32_t newest = cache.positions[0][5];
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN}) {
        const keel_scores scores =
            scores_of(bench.blank({1, score_slots}), queries, KEEL_REDUCE_MEAN, 0, false);
        auto s = args_of<keel_attention_scores_args>(KEEL_SCORES_LOGITS | KEEL_SCORES_WINDOW |
                                                     KEEL_SCORES_SOFTCAP);
        s.q = bench.floats({m, 1, 4}, q);
        s.kv = &cache.view;
        s.scores = &scores;
        s.scale = 0.5F;
        s.softcap = 0.5F;
        s.q_positions = bench.ints({m}, {newest, newest + 1000}); // the second query sees nothing
        s.window = newest - cache.positions[0][2] + 1; // the first query sees slots 2 to 5
        REQUIRE(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_OK);
        const Values out = bench.read(scores.out);
        for (int64_t j = 0; j < 6; ++j)
            CHECK(out[static_cast<size_t>(j)] ==
                  Approx(j < 2 ? 0 : naive.logit(0, 0, j)).margin(1e-6));
    }
}

TEST_CASE("a window without positions of the queries is refused") {
    Bench bench;
    const BenchCache cache(bench, {6}, 4, 4, 6);
    const keel_scores scores =
        scores_of(bench.blank({1, score_slots}), KEEL_REDUCE_SUM, KEEL_REDUCE_SUM, 0, false);
    auto s = args_of<keel_attention_scores_args>(KEEL_SCORES_WINDOW);
    s.q = bench.floats({2, 1, 4}, random_values(8, 7));
    s.kv = &cache.view;
    s.scores = &scores;
    s.window = 3;
    CHECK(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_E_INVALID_ARG);
    s.q_positions = bench.ints({3}, {1, 2, 3});
    CHECK(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_E_INVALID_ARG);
}

TEST_CASE("logits are reduced over the queries that see a slot") {
    Bench bench;
    const BenchCache cache(bench, {6}, 4, 4, 6);
    const int64_t m = 3;
    const Values q = random_values(static_cast<size_t>(m * 4), 7);
    const NaiveAttention naive{cache, q, m, 1, 0.5, causal(cache, m)};
    for (const keel_reduce queries : {KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, KEEL_REDUCE_MAX}) {
        const keel_scores scores =
            scores_of(bench.blank({1, score_slots}), queries, KEEL_REDUCE_MEAN, 2,
                      false); // queries 1 and 2
        auto s = args_of<keel_attention_scores_args>(KEEL_SCORES_LOGITS | KEEL_SCORES_CAUSAL);
        s.q = bench.floats({m, 1, 4}, q);
        s.kv = &cache.view;
        s.scores = &scores;
        s.scale = 0.5F;
        REQUIRE(bench.backend().attention_scores(bench.ctx(), &s) == KEEL_OK);
        const Values out = bench.read(scores.out);
        for (int64_t j = 0; j < 6; ++j) {
            const double second = naive.logit(1, 0, j), third = naive.logit(2, 0, j);
            double want = j == 5 ? third : second + third; // only query 2 sees slot 5
            if (queries == KEEL_REDUCE_MEAN && j != 5) want /= 2;
            if (queries == KEEL_REDUCE_MAX && j != 5) want = std::max(second, third);
            CHECK(out[static_cast<size_t>(j)] == Approx(want).margin(1e-6));
        }
        CHECK(std::isnan(out[6]));
    }
}
