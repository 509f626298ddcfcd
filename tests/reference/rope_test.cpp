#include "reference/bench.hpp"

using namespace keel::test;

namespace {

// Tables whose row p rotates pair i by the angle p * steps[i].
struct Turns {
    keel_rope_tables tables = {};
    Turns(Bench &bench, const Values &steps, int64_t rows, keel_rope_mode mode) {
        Values cos, sin;
        for (int64_t p = 0; p < rows; ++p) {
            for (const double step : steps) {
                cos.push_back(std::cos(static_cast<double>(p) * step));
                sin.push_back(std::sin(static_cast<double>(p) * step));
            }
        }
        const auto half = static_cast<int64_t>(steps.size());
        tables.h = KEEL_HEADER(keel_rope_tables);
        tables.cos = bench.floats({rows, half}, cos);
        tables.sin = bench.floats({rows, half}, sin);
        tables.mode = mode;
        tables.rot = static_cast<uint32_t>(2 * half);
    }
};

Values rotated(Bench &bench, const Turns &turns, const keel_tensor *x, const keel_tensor *positions,
               uint64_t features = 0) {
    auto a = args_of<keel_rope_args>(features);
    a.x = x;
    a.positions = positions;
    a.tables = &turns.tables;
    a.out = bench.blank({x->shape[0], x->shape[1], x->shape[2]});
    REQUIRE(bench.backend().rope(bench.ctx(), &a) == KEEL_OK);
    return bench.read(a.out);
}

} // namespace

TEST_CASE("a quarter turn maps (a, b) to (-b, a) in both pairings, and changes nothing else") {
    Bench bench;
    const Values steps = {M_PI / 2, M_PI};
    const auto *x = bench.floats({1, 1, 5}, {1, 2, 3, 4, 5});
    const auto *one = bench.ints({1}, {1});
    require_close(rotated(bench, Turns(bench, steps, 4, KEEL_ROPE_HALF_SPLIT), x, one),
                  {-3, -2, 1, -4, 5});
    require_close(rotated(bench, Turns(bench, steps, 4, KEEL_ROPE_INTERLEAVED), x, one),
                  {-2, 1, -3, -4, 5});
}

TEST_CASE("rotating back undoes a rotation, and positions wrap around at the tables' end") {
    Bench bench;
    for (const keel_rope_mode mode : {KEEL_ROPE_HALF_SPLIT, KEEL_ROPE_INTERLEAVED}) {
        const Turns turns(bench, {1.0, 0.1, 0.01}, 7, mode);
        const Values x = random_values(2 * 3 * 6, 1);
        const auto *there = bench.floats(
            {2, 3, 6}, rotated(bench, turns, bench.floats({2, 3, 6}, x), bench.ints({2}, {5, 3})));
        require_close(rotated(bench, turns, there, bench.ints({2}, {5, 3}), KEEL_ROPE_INVERSE), x,
                      1e-6);
        CHECK(rotated(bench, turns, bench.floats({2, 3, 6}, x), bench.ints({2}, {5 + 7, 3 + 70})) ==
              rotated(bench, turns, bench.floats({2, 3, 6}, x), bench.ints({2}, {5, 3})));
    }
}

TEST_CASE("with positions per KV head, a query head uses its KV head's positions") {
    Bench bench;
    const Turns turns(bench, {0.7}, 50, KEEL_ROPE_HALF_SPLIT);
    const Values x = random_values(1 * 4 * 2, 3);
    const Values y = rotated(bench, turns, bench.floats({1, 4, 2}, x), bench.ints({1, 2}, {3, 20}));
    Values want;
    for (size_t h = 0; h < 4; ++h) {
        const double angle = 0.7 * (h < 2 ? 3 : 20);
        want.push_back(x[2 * h] * std::cos(angle) - x[2 * h + 1] * std::sin(angle));
        want.push_back(x[2 * h + 1] * std::cos(angle) + x[2 * h] * std::sin(angle));
    }
    require_close(y, want, 4e-7);
}

TEST_CASE("dot products depend only on the distance of positions") {
    Bench bench;
    const Turns turns(bench, {1.0, 0.3, 0.05}, 100, KEEL_ROPE_INTERLEAVED);
    const auto *q = bench.floats({1, 1, 6}, random_values(6, 4));
    const auto *k = bench.floats({1, 1, 6}, random_values(6, 5));
    const auto product = [&](int32_t q_position, int32_t k_position) {
        const Values a = rotated(bench, turns, q, bench.ints({1}, {q_position}));
        const Values b = rotated(bench, turns, k, bench.ints({1}, {k_position}));
        double sum = 0;
        for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    };
    CHECK(product(20, 3) == Approx(product(97, 80)).margin(1e-5));
    CHECK(product(20, 3) != Approx(product(20, 4)).margin(1e-3));
}
