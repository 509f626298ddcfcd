#include "reference/naive_attention.hpp"

using namespace keel::test;

namespace {

struct Call {
    keel_attention_args args;
    Call(Bench &bench, const BenchCache &cache, const Values &q, int64_t m, int64_t heads,
         uint64_t features)
        : args(args_of<keel_attention_args>(features)) {
        args.q = bench.floats({m, heads, cache.dim}, q);
        args.kv = &cache.view;
        args.out = bench.blank({m, heads, cache.v_dim});
        args.lse = (features & KEEL_ATTENTION_LSE) != 0 ? bench.blank({m, heads}) : nullptr;
        args.scale = 0.25F;
    }
};

} // namespace

TEST_CASE("equal keys share attention equally among the slots that a query sees") {
    Bench bench;
    BenchCache cache(bench, {3}, 2, 1, 1);
    const std::vector<float> same = {1, 1};
    for (int64_t slot = 0; slot < 3; ++slot) { // all of them are in block 4, the last one
        bench.backend().buffer_write(
            bench.ctx(), cache.view.k->buffer,
            cache.view.k->offset +
                static_cast<uint64_t>(4 * cache.view.k->stride[0] + slot * cache.view.k->stride[1]),
            same.data(), 8);
        const auto value = static_cast<float>(slot * 3); // 0, 3, 6
        bench.backend().buffer_write(
            bench.ctx(), cache.view.v->buffer,
            cache.view.v->offset +
                static_cast<uint64_t>(4 * cache.view.v->stride[0] + slot * cache.view.v->stride[1]),
            &value, 4);
    }
    Call decode(bench, cache, {5, -2}, 1, 1, KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_LSE);
    REQUIRE(bench.backend().attention(bench.ctx(), &decode.args) == KEEL_OK);
    require_close(bench.read(decode.args.out), {3});
    require_close(bench.read(decode.args.lse), {0.25 * 3 + std::log(3.0)});
    Call prefill(bench, cache, {5, -2, 5, -2, 5, -2}, 3, 1, KEEL_ATTENTION_CAUSAL);
    REQUIRE(bench.backend().attention(bench.ctx(), &prefill.args) == KEEL_OK);
    require_close(bench.read(prefill.args.out), {0, 1.5, 3});
}

TEST_CASE("attention agrees with float64 for grouped heads of different lengths") {
    Bench bench;
    const BenchCache cache(bench, {11, 5, 9}, 7, 3, 2);
    for (const int64_t m : {1, 4, 5}) {
        for (const bool is_causal : {false, true}) {
            const Values q = random_values(static_cast<size_t>(m * 6 * 7), 9);
            Call call(bench, cache, q, m, 6,
                      KEEL_ATTENTION_LSE | (is_causal ? KEEL_ATTENTION_CAUSAL : 0));
            REQUIRE(bench.backend().attention(bench.ctx(), &call.args) == KEEL_OK);
            NaiveAttention naive{cache, q, m, 6, 0.25, everything()};
            if (is_causal) naive.sees = causal(cache, m);
            require_close(bench.read(call.args.out), naive.out());
            Values lse;
            for (int64_t i = 0; i < m; ++i)
                for (int64_t h = 0; h < 6; ++h) lse.push_back(std::log(naive.weight_sum(i, h)));
            require_close(bench.read(call.args.lse), lse);
        }
    }
}

TEST_CASE("a query that sees nothing gives zeros and an lse of -inf") {
    Bench bench;
    const BenchCache cache(bench, {2, 0}, 4, 4, 3);
    const Values q = random_values(3 * 2 * 4, 1);
    Call call(bench, cache, q, 3, 2,
              KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_LSE); // there are more queries than keys
    REQUIRE(bench.backend().attention(bench.ctx(), &call.args) == KEEL_OK);
    const Values out = bench.read(call.args.out), lse = bench.read(call.args.lse);
    // query 0 of head 0 sees slots up to 2 - 3 + 0 < 0, so none
    for (size_t i = 0; i < 4; ++i) CHECK(out[i] == 0);
    CHECK(out[8] != 0);
    for (const size_t i : {0, 1, 3, 5}) CHECK(lse[i] == -INFINITY);
    CHECK(std::isfinite(lse[2]));
}

TEST_CASE("the window counts positions and not slots, and the soft cap changes the logits") {
    Bench bench;
    const BenchCache cache(bench, {10, 7}, 5, 5, 4); // every third position is left out
    const int64_t m = 2;
    const Values q = random_values(static_cast<size_t>(m * 2 * 5), 2);
    const std::vector<Ints> columns = {{14, 11}, {15, 12}};
    for (const bool per_head : {false, true}) {
        Call call(bench, cache, q, m, 2,
                  KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW | KEEL_ATTENTION_SOFTCAP);
        call.args.q_positions =
            per_head ? bench.ints({2, 2}, {14, 11, 15, 12}) : bench.ints({2}, {14, 15});
        call.args.window = 6;
        call.args.softcap = 0.5F;
        REQUIRE(bench.backend().attention(bench.ctx(), &call.args) == KEEL_OK);
        NaiveAttention naive{cache, q, m, 2, 0.25, everything(), 0.5};
        naive.sees = [&](int64_t i, int64_t head, int64_t j) {
            const int32_t position =
                columns[static_cast<size_t>(i)][per_head ? static_cast<size_t>(head) : 0];
            return j <= cache.length(head) - m + i &&
                   position - cache.positions[static_cast<size_t>(head)][static_cast<size_t>(j)] <
                       6;
        };
        Values want = naive.out();
        // these queries see no slot
        for (double &value : want) value = std::isnan(value) ? 0 : value;
        require_close(bench.read(call.args.out), want);
    }
}

TEST_CASE("attention reads keys and values as they are stored in their dtype") {
    Bench bench;
    for (const keel_dtype dtype :
         {KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        BenchCache cache(bench, {6}, 32, 32, 5, dtype);
        for (int64_t j = 0; j < 6; ++j) {
            cache.k[0][static_cast<size_t>(j)] = cache.row(bench, cache.view.k, 0, j);
            cache.v[0][static_cast<size_t>(j)] = cache.row(bench, cache.view.v, 0, j);
        }
        const Values q = random_values(2 * 32, 3);
        Call call(bench, cache, q, 1, 2, KEEL_ATTENTION_CAUSAL);
        REQUIRE(bench.backend().attention(bench.ctx(), &call.args) == KEEL_OK);
        require_close(bench.read(call.args.out),
                      NaiveAttention{cache, q, 1, 2, 0.25, causal(cache, 1)}.out());
    }
}

TEST_CASE("a NaN in a key affects only the queries that see it") {
    Bench bench;
    BenchCache cache(bench, {4}, 2, 2, 6);
    const float nan = NAN;
    const keel_tensor &k = *cache.view.k;
    bench.backend().buffer_write(
        bench.ctx(), k.buffer, k.offset + static_cast<uint64_t>(4 * k.stride[0] + 2 * k.stride[1]),
        &nan,
        4); // slot 2
    Call call(bench, cache, random_values(8, 1), 4, 1, KEEL_ATTENTION_CAUSAL);
    REQUIRE(bench.backend().attention(bench.ctx(), &call.args) == KEEL_OK);
    const Values out = bench.read(call.args.out);
    for (size_t i = 0; i < 8; ++i) CHECK(std::isnan(out[i]) == (i >= 4));
}
