#include "reference/bench.hpp"

using namespace keel::test;

namespace {

keel_rope_tables turns(Bench &bench, const Values &angles,
                       int64_t half) { // row r rotates each pair by angles[r]
    Values cos, sin;
    for (const double angle : angles) {
        for (int64_t i = 0; i < half; ++i) {
            cos.push_back(std::cos(angle));
            sin.push_back(std::sin(angle));
        }
    }
    keel_rope_tables t = {};
    t.h = KEEL_HEADER(keel_rope_tables);
    t.cos = bench.floats({static_cast<int64_t>(angles.size()), half}, cos);
    t.sin = bench.floats({static_cast<int64_t>(angles.size()), half}, sin);
    t.mode = KEEL_ROPE_HALF_SPLIT;
    t.rot = static_cast<uint32_t>(2 * half);
    return t;
}

} // namespace

TEST_CASE("kv_append writes rows and positions at the end of each head, without slots below 0") {
    Bench bench;
    // three tokens: slots 3..5 of head 0, and -2..0 of head 1
    BenchCache cache(bench, {6, 1}, 2, 1, 1);
    const Values first = cache.row(bench, cache.view.k, 0, 2);
    auto a = args_of<keel_kv_append_args>();
    a.k = bench.floats({3, 2, 2}, {1, 2, 10, 20, 3, 4, 30, 40, 5, 6, 50, 60});
    a.v = bench.floats({3, 2, 1}, {7, 70, 8, 80, 9, 90});
    a.positions = bench.ints({3}, {100, 101, 102});
    a.kv = &cache.view;
    REQUIRE(bench.backend().kv_append(bench.ctx(), &a) == KEEL_OK);
    CHECK(cache.row(bench, cache.view.k, 0, 2) == first);
    CHECK(cache.row(bench, cache.view.k, 0, 3) == Values{1, 2});
    CHECK(cache.row(bench, cache.view.k, 0, 5) == Values{5, 6});
    CHECK(cache.row(bench, cache.view.v, 0, 4) == Values{8});
    CHECK(cache.position(bench, 0, 4) == 101);
    CHECK(cache.row(bench, cache.view.k, 1, 0) == Values{50, 60});
    CHECK(cache.row(bench, cache.view.v, 1, 0) == Values{90});
    CHECK(cache.position(bench, 1, 0) == 102);
    CHECK(std::isnan(cache.row(bench, cache.view.k, 1, 1)[0]));
    a.positions = bench.ints({3, 2}, {1, 2, 3, 4, 5, 6});
    REQUIRE(bench.backend().kv_append(bench.ctx(), &a) == KEEL_OK);
    CHECK(cache.position(bench, 0, 4) == 3);
    CHECK(cache.position(bench, 1, 0) == 6);
}

TEST_CASE("qkv_prepare normalizes, keeps a copy, rotates and appends") {
    Bench bench;
    BenchCache cache(bench, {2, 5}, 4, 4, 1);
    const int64_t m = 2, heads = 4;
    const Values q = random_values(static_cast<size_t>(m * heads * 4), 1),
                 k = random_values(m * 2 * 4, 2), v = random_values(m * 2 * 4, 3);
    const Values q_norm = random_values(4, 4), k_norm = random_values(4, 5);
    const double angles[] = {0.0, 0.4, 1.1};
    const keel_rope_tables tables = turns(bench, {angles[0], angles[1], angles[2]}, 2);
    auto a = args_of<keel_qkv_args>(KEEL_QKV_NORM | KEEL_QKV_UNROTATED);
    a.q = bench.floats({m, heads, 4}, q);
    a.k = bench.floats({m, 2, 4}, k);
    a.v = bench.floats({m, 2, 4}, v);
    a.positions = bench.ints({m}, {2, 4}); // position 4 wraps around to row 1
    a.tables = &tables;
    a.q_norm = bench.floats({4}, q_norm);
    a.k_norm = bench.floats({4}, k_norm);
    a.kv = &cache.view;
    a.q_out = a.q;
    a.q_unrotated = bench.blank({m, heads, 4});
    a.k_unrotated = bench.blank({m, 2, 4});
    a.eps = 1e-6F;
    REQUIRE(bench.backend().qkv_prepare(bench.ctx(), &a) == KEEL_OK);
    const auto normalized = [&](const Values &x, size_t at, const Values &weight) {
        double squares = 0;
        for (size_t e = 0; e < 4; ++e) squares += x[at + e] * x[at + e];
        Values out;
        for (size_t e = 0; e < 4; ++e)
            out.push_back(x[at + e] / std::sqrt(squares / 4 + 1e-6) * weight[e]);
        return out;
    };
    const auto turned = [](const Values &x, double angle) {
        const double c = std::cos(angle), s = std::sin(angle);
        return Values{x[0] * c - x[2] * s, x[1] * c - x[3] * s, x[2] * c + x[0] * s,
                      x[3] * c + x[1] * s};
    };
    Values q_want, q_plain;
    for (int64_t i = 0; i < m; ++i) {
        const double angle = angles[i == 0 ? 2 : 1];
        for (int64_t h = 0; h < heads; ++h) {
            const Values plain = normalized(q, static_cast<size_t>((i * heads + h) * 4), q_norm);
            const Values want = turned(plain, angle);
            q_plain.insert(q_plain.end(), plain.begin(), plain.end());
            q_want.insert(q_want.end(), want.begin(), want.end());
        }
        for (int64_t head = 0; head < 2; ++head) {
            const auto at = static_cast<size_t>((i * 2 + head) * 4);
            const int64_t slot = cache.length(head) - m + i;
            require_close(cache.row(bench, cache.view.k, head, slot),
                          turned(normalized(k, at, k_norm), angle), 5e-7);
            require_close(cache.row(bench, cache.view.v, head, slot),
                          Values(v.begin() + static_cast<int64_t>(at),
                                 v.begin() + static_cast<int64_t>(at) + 4),
                          0);
            CHECK(cache.position(bench, head, slot) == (i == 0 ? 2 : 4));
        }
    }
    require_close(bench.read(a.q_unrotated), q_plain, 5e-7);
    require_close(bench.read(a.q_out), q_want, 5e-7);
}

TEST_CASE("kv_gather compacts in place and moves positions and side arrays") {
    Bench bench;
    BenchCache cache(bench, {9, 4}, 3, 2, 2);
    const auto k = cache.k, v = cache.v;
    const auto positions = cache.positions;
    const Ints keep = {0, 3, 4, 8, 1, 2, -1, -1};
    Values side_values;
    Ints side_marks;
    for (int i = 0; i < 20; ++i) {
        side_values.push_back(i);
        side_marks.push_back(1000 + i);
    }
    const keel_tensor *sides[] = {bench.floats({2, 10}, side_values),
                                  bench.ints({2, 10}, side_marks)};
    auto a = args_of<keel_kv_gather_args>();
    a.from = a.to = &cache.view;
    a.index = bench.ints({2, 4}, keep);
    a.count = bench.ints({2}, {4, 2});
    a.sides = sides;
    a.n_sides = 2;
    REQUIRE(bench.backend().kv_gather(bench.ctx(), &a) == KEEL_OK);
    for (int64_t head = 0; head < 2; ++head) {
        for (int64_t j = 0; j < (head == 0 ? 4 : 2); ++j) {
            const auto from = static_cast<size_t>(keep[static_cast<size_t>(head * 4 + j)]);
            CHECK(cache.row(bench, cache.view.k, head, j) == k[static_cast<size_t>(head)][from]);
            CHECK(cache.row(bench, cache.view.v, head, j) == v[static_cast<size_t>(head)][from]);
            CHECK(cache.position(bench, head, j) == positions[static_cast<size_t>(head)][from]);
            CHECK(bench.read(sides[0])[static_cast<size_t>(head * 10 + j)] ==
                  static_cast<double>(static_cast<size_t>(head) * 10 + from));
            CHECK(bench.read_ints(sides[1])[static_cast<size_t>(head * 10 + j)] ==
                  1000 + static_cast<int32_t>(static_cast<size_t>(head) * 10 + from));
        }
    }
    CHECK(cache.row(bench, cache.view.k, 0, 5) == k[0][5]); // nothing changes after the kept slots
    CHECK(bench.read_ints(cache.view.lengths) == Ints{9, 4});
    a.index = bench.ints({2, 4}, {1, 0, 2, 3, 0, 1, 2, 3});
    // the list does not rise
    CHECK(bench.backend().kv_gather(bench.ctx(), &a) == KEEL_E_INVALID_ARG);
}

TEST_CASE("kv_rerotate rotates listed keys, from the cache or from a source, and no others") {
    Bench bench;
    for (const bool from_source : {false, true}) {
        BenchCache cache(bench, {5}, 4, 4, 3);
        const keel_rope_tables tables = turns(bench, {M_PI / 2, M_PI}, 2);
        Values source;
        for (int i = 0; i < 4 * 4; ++i) source.push_back(i);
        auto a = args_of<keel_kv_rerotate_args>(from_source ? KEEL_REROTATE_SOURCE : 0);
        a.kv = &cache.view;
        a.tables = &tables;
        a.row = bench.ints({1, 8}, {0, 0, -1, 1, 1, 0, 0, 0});
        a.new_positions = bench.ints({1, 8}, {90, 91, 92, 93, 94, 95, 96, 97});
        a.source = from_source ? bench.floats({1, 4, 4}, source) : nullptr;
        a.begin = 1;
        a.end = 5;
        REQUIRE(bench.backend().kv_rerotate(bench.ctx(), &a) == KEEL_OK);
        // this slot is before `begin`
        CHECK(cache.row(bench, cache.view.k, 0, 0) == cache.k[0][0]);
        CHECK(cache.row(bench, cache.view.k, 0, 2) == cache.k[0][2]); // row -1
        CHECK(cache.position(bench, 0, 2) == cache.positions[0][2]);
        const Values one = from_source ? Values{0, 1, 2, 3} : cache.k[0][1];
        require_close(cache.row(bench, cache.view.k, 0, 1), {-one[2], -one[3], one[0], one[1]});
        CHECK(cache.position(bench, 0, 1) == 91);
        const Values four = from_source ? Values{12, 13, 14, 15} : cache.k[0][4];
        require_close(cache.row(bench, cache.view.k, 0, 4),
                      {-four[0], -four[1], -four[2], -four[3]}, 1e-6);
        // this slot is after the length
        CHECK(std::isnan(cache.row(bench, cache.view.k, 0, 5)[0]));
    }
}
