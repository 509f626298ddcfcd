#include "reference/bench.hpp"

using namespace keel::test;

TEST_CASE("silu_mul and gelu_mul agree with float64, for separate and alternating inputs") {
    Bench bench;
    const size_t m = 3, n = 13;
    const Values gate = random_values(m * n, 1, 3.0), up = random_values(m * n, 2);
    Values pairs;
    for (size_t i = 0; i < gate.size(); ++i) {
        pairs.push_back(gate[i]);
        pairs.push_back(up[i]);
    }
    const auto want_of = [&](const std::function<double(double)> &f, bool with_up) {
        Values want;
        for (size_t i = 0; i < gate.size(); ++i)
            want.push_back(f(gate[i]) * (with_up ? up[i] : 1.0));
        return want;
    };
    const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
    const auto gelu = [](double g) { return g * std::erfc(-g / std::sqrt(2.0)) / 2; };
    const auto gelu_tanh = [](double g) {
        return g / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    };
    for (const bool interleaved : {false, true}) {
        auto a = args_of<keel_gate_args>(interleaved ? KEEL_GATE_INTERLEAVED : 0);
        a.gate = interleaved ? bench.floats({m, 2 * n}, pairs) : bench.floats({m, n}, gate);
        a.up = interleaved ? nullptr : bench.floats({m, n}, up);
        a.out = bench.blank({m, n});
        REQUIRE(bench.backend().silu_mul(bench.ctx(), &a) == KEEL_OK);
        require_close(bench.read(a.out), want_of(silu, true));
        REQUIRE(bench.backend().gelu_mul(bench.ctx(), &a) == KEEL_OK);
        require_close(bench.read(a.out), want_of(gelu, true));
        a.features |= KEEL_GELU_TANH;
        REQUIRE(bench.backend().gelu_mul(bench.ctx(), &a) == KEEL_OK);
        require_close(bench.read(a.out), want_of(gelu_tanh, true));
    }
    auto alone = args_of<keel_gate_args>();
    alone.gate = bench.floats({m, n}, gate);
    alone.out = bench.blank({m, n});
    REQUIRE(bench.backend().gelu_mul(bench.ctx(), &alone) == KEEL_OK);
    require_close(bench.read(alone.out), want_of(gelu, false));
    // silu_mul requires `up`
    CHECK(bench.backend().silu_mul(bench.ctx(), &alone) == KEEL_E_INVALID_ARG);
}

TEST_CASE("add, add_bias, scale and scaled_add compute their formulas, for each rank") {
    Bench bench;
    for (const Dims &shape : {Dims{6}, Dims{2, 3}, Dims{1, 2, 3}, Dims{2, 1, 1, 3}}) {
        const Values x = {1, 2, 3, 4, 5, 6}, y = {10, 20, 30, 40, 50, 60};
        auto a = args_of<keel_elementwise_args>();
        a.a = bench.floats(shape, x);
        a.b = bench.floats(shape, y);
        a.out = bench.blank(shape);
        a.factor = -0.5F;
        REQUIRE(bench.backend().add(bench.ctx(), &a) == KEEL_OK);
        CHECK(bench.read(a.out) == Values{11, 22, 33, 44, 55, 66});
        REQUIRE(bench.backend().scale(bench.ctx(), &a) == KEEL_OK);
        CHECK(bench.read(a.out) == Values{-0.5, -1, -1.5, -2, -2.5, -3});
        a.out = a.b;
        REQUIRE(bench.backend().scaled_add(bench.ctx(), &a) == KEEL_OK);
        CHECK(bench.read(a.out) == Values{9.5, 19, 28.5, 38, 47.5, 57});
    }
    auto a = args_of<keel_elementwise_args>();
    a.a = bench.floats({2, 3}, {1, 2, 3, 4, 5, 6});
    a.b = bench.floats({3}, {10, 20, 30});
    a.out = a.a;
    REQUIRE(bench.backend().add_bias(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read(a.out) == Values{11, 22, 33, 14, 25, 36});
    a.b = bench.floats({2}, {10, 20});
    CHECK(bench.backend().add_bias(bench.ctx(), &a) == KEEL_E_INVALID_ARG);
}
