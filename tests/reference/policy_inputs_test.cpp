#include "reference/bench.hpp"

using namespace keel::test;

namespace {

constexpr int64_t slots = 12;

keel_keys_args keys_of(const BenchCache &cache, const keel_tensor *out, uint64_t features = 0) {
    auto a = args_of<keel_keys_args>(features);
    a.kv = &cache.view;
    a.out = out;
    a.begin = 1;
    a.end = 9;
    return a;
}

double norm_of(const Values &x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    return std::sqrt(squares);
}

} // namespace

TEST_CASE("key_project gives keys, products or norms for the used slots of the range") {
    Bench bench;
    const BenchCache cache(bench, {11, 4}, 5, 3, 1);
    const Values matrix = random_values(5 * 2, 2);
    auto keys = keys_of(cache, bench.blank({2, slots, 5}));
    REQUIRE(bench.backend().key_project(bench.ctx(), &keys) == KEEL_OK);
    auto products = keys_of(cache, bench.blank({2, slots, 2}));
    products.projection = bench.floats({5, 2}, matrix);
    REQUIRE(bench.backend().key_project(bench.ctx(), &products) == KEEL_OK);
    auto norms = keys_of(cache, bench.blank({2, slots}), KEEL_KEYS_NORMS);
    REQUIRE(bench.backend().key_project(bench.ctx(), &norms) == KEEL_OK);
    const double nan = std::nan("");
    Values keys_want(2 * slots * 5, nan), products_want(2 * slots * 2, nan),
        norms_want(2 * slots, nan);
    for (size_t h = 0; h < 2; ++h) {
        for (size_t j = 1; j < std::min<size_t>(9, cache.k[h].size()); ++j) {
            const Values &key = cache.k[h][j];
            for (size_t e = 0; e < 5; ++e) keys_want[(h * slots + j) * 5 + e] = key[e];
            for (size_t c = 0; c < 2; ++c) {
                double sum = 0;
                for (size_t e = 0; e < 5; ++e) sum += key[e] * matrix[e * 2 + c];
                products_want[(h * slots + j) * 2 + c] = sum;
            }
            norms_want[h * slots + j] = norm_of(key);
        }
    }
    require_close(bench.read(keys.out), keys_want, 0);
    require_close(bench.read(products.out), products_want);
    require_close(bench.read(norms.out), norms_want);
}

TEST_CASE("un-rotated keys are rotated back by the positions of their slots") {
    Bench bench;
    const BenchCache cache(bench, {6}, 2, 2, 3);
    Values cos, sin;
    for (int p = 0; p < 20; ++p) {
        cos.push_back(std::cos(0.3 * p));
        sin.push_back(std::sin(0.3 * p));
    }
    keel_rope_tables tables = {};
    tables.h = KEEL_HEADER(keel_rope_tables);
    tables.cos = bench.floats({20, 1}, cos);
    tables.sin = bench.floats({20, 1}, sin);
    tables.mode = KEEL_ROPE_INTERLEAVED;
    tables.rot = 2;
    auto a = keys_of(cache, bench.blank({1, slots, 2}), KEEL_KEYS_UNROTATED);
    a.tables = &tables;
    a.begin = 0;
    REQUIRE(bench.backend().key_project(bench.ctx(), &a) == KEEL_OK);
    const Values out = bench.read(a.out);
    for (size_t j = 0; j < 6; ++j) {
        const double angle = -0.3 * cache.positions[0][j];
        const Values &key = cache.k[0][j];
        CHECK(out[2 * j] ==
              Approx(key[0] * std::cos(angle) - key[1] * std::sin(angle)).margin(1e-6));
        CHECK(out[2 * j + 1] ==
              Approx(key[1] * std::cos(angle) + key[0] * std::sin(angle)).margin(1e-6));
    }
}

TEST_CASE("key_sum adds up keys, or their directions, and gives zeros for an empty range") {
    Bench bench;
    BenchCache cache(bench, {11, 4}, 3, 3, 4);
    for (const uint64_t features : {0, 4}) {
        auto a = keys_of(cache, bench.blank({2, 3}), features);
        REQUIRE(bench.backend().key_sum(bench.ctx(), &a) == KEEL_OK);
        Values want(6, 0.0);
        for (size_t h = 0; h < 2; ++h) {
            for (size_t j = 1; j < std::min<size_t>(9, cache.k[h].size()); ++j) {
                for (size_t e = 0; e < 3; ++e)
                    want[h * 3 + e] +=
                        cache.k[h][j][e] / (features != 0 ? norm_of(cache.k[h][j]) : 1.0);
            }
        }
        require_close(bench.read(a.out), want);
        a.begin = a.end = 3;
        REQUIRE(bench.backend().key_sum(bench.ctx(), &a) == KEEL_OK);
        CHECK(bench.read(a.out) == Values(6, 0.0));
    }
}

TEST_CASE("value_norms computes the 2-norm or the 1-norm") {
    Bench bench;
    const BenchCache cache(bench, {7}, 3, 4, 5);
    for (const uint64_t features : {uint64_t{0}, uint64_t{KEEL_KEYS_L1}}) {
        const auto a = keys_of(cache, bench.blank({1, slots}), features);
        REQUIRE(bench.backend().value_norms(bench.ctx(), &a) == KEEL_OK);
        Values want(slots, std::nan(""));
        for (size_t j = 1; j < 7; ++j) {
            double sum = 0;
            for (const double value : cache.v[0][j]) sum += std::fabs(value);
            want[j] = features == 0 ? norm_of(cache.v[0][j]) : sum;
        }
        require_close(bench.read(a.out), want);
    }
}

TEST_CASE("query_stats adds sums and outer products to the old values") {
    Bench bench;
    auto a = args_of<keel_query_stats_args>();
    a.q = bench.floats({2, 1, 2}, {1, 2, 3, -1});
    a.sum = bench.floats({1, 2}, {10, 20});
    a.second = bench.floats({1, 2, 2}, {100, 0, 0, 0});
    REQUIRE(bench.backend().query_stats(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read(a.sum) == Values{14, 21});
    CHECK(bench.read(a.second) == Values{110, -1, -1, 5});
    a.second = nullptr;
    REQUIRE(bench.backend().query_stats(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read(a.sum) == Values{18, 22});
}
