#include "reference/bench.hpp"

#include <array>

using namespace keel::test;

namespace {

struct Choice {
    Ints index;
    Values weights;
};

Choice choose(Bench &bench, const Dims &shape, const Values &logits, int64_t k, uint64_t features,
              const Values &bias = {}, std::array<uint32_t, 3> groups = {}) {
    auto a = args_of<keel_choose_experts_args>(features);
    a.logits = bench.floats(shape, logits);
    a.bias = bias.empty() ? nullptr : bench.floats({shape[1]}, bias);
    a.index = bench.ints({shape[0], k}, Ints(static_cast<size_t>(shape[0] * k), 77));
    a.weights = bench.blank({shape[0], k});
    a.scale = 1;
    a.groups = groups[0], a.groups_kept = groups[1], a.group_top = groups[2];
    REQUIRE(bench.backend().choose_experts(bench.ctx(), &a) == KEEL_OK);
    return {bench.read_ints(a.index), bench.read(a.weights)};
}

} // namespace

TEST_CASE("choose_experts gives the softmax of all logits, or of the chosen ones") {
    Bench bench;
    const Values logits = {std::log(1.0), std::log(4.0), std::log(2.0), std::log(3.0)};
    const Choice plain = choose(bench, {1, 4}, logits, 2, 0);
    CHECK(plain.index == Ints{1, 3});
    require_close(plain.weights, {0.4, 0.3});
    const Choice normal = choose(bench, {1, 4}, logits, 2, KEEL_CHOOSE_NORMALIZE);
    CHECK(normal.index == Ints{1, 3});
    require_close(normal.weights, {4.0 / 7, 3.0 / 7});
}

TEST_CASE("a balancing bias changes the choice, but not the weights") {
    Bench bench;
    const Values logits = {0, 1, -1, 0.5}, bias = {0, -1, 1, 0};
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const Choice c = choose(bench, {1, 4}, logits, 2, KEEL_CHOOSE_SIGMOID | KEEL_CHOOSE_BIAS, bias);
    CHECK(c.index == Ints{2, 3});
    require_close(c.weights, {sigmoid(-1), sigmoid(0.5)});
}

TEST_CASE("experts outside the best groups are not chosen") {
    Bench bench;
    // The group of experts 0 and 1 has the largest logit. The group of 2 and 3 has the largest sum.
    const Values logits = {3, -3, 2, 2, 0, 0};
    const uint64_t features = KEEL_CHOOSE_GROUPS | KEEL_CHOOSE_SIGMOID;
    CHECK(choose(bench, {1, 6}, logits, 2, features, {}, {3, 1, 1}).index == Ints{0, 1});
    CHECK(choose(bench, {1, 6}, logits, 2, features, {}, {3, 1, 2}).index == Ints{2, 3});
    CHECK(choose(bench, {1, 6}, logits, 3, features, {}, {3, 2, 1}).index == Ints{0, 2, 3});
}

TEST_CASE("equal logits are chosen in the order of their experts, and a NaN chooses no expert") {
    Bench bench;
    const Choice c = choose(bench, {2, 3}, {5, 5, 5, 1, NAN, 2}, 2, KEEL_CHOOSE_NORMALIZE);
    CHECK(c.index == Ints{0, 1, -1, -1});
    CHECK(c.weights[0] == 0.5);
    CHECK(std::isnan(c.weights[2]));
    CHECK(std::isnan(c.weights[3]));
}

TEST_CASE("expert_matmul multiplies by the chosen matrices, and adds their results with weights") {
    Bench bench;
    const size_t m = 4, top = 2, experts = 3, n = 5, k = 32;
    const Ints index = {0, 2, 1, 1, 2, 0, 0, 1};
    for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_BF16, KEEL_DTYPE_Q4_0}) {
        for (const bool own_x : {false, true}) {
            const size_t inputs = own_x ? top : 1;
            const Values x = random_values(m * inputs * k, 1), weights = random_values(m * top, 3),
                         old = random_values(m * n, 4);
            const auto *w =
                bench.floats({experts * n, k}, random_values(experts * n * k, 2), dtype);
            const Values matrix = bench.read(w);
            Values y(m * top * n, 0.0), sum = old;
            for (size_t r = 0; r < m; ++r)
                for (size_t j = 0; j < top; ++j)
                    for (size_t c = 0; c < n; ++c) {
                        const size_t e = static_cast<size_t>(index[r * top + j]);
                        double &value = y[(r * top + j) * n + c];
                        for (size_t i = 0; i < k; ++i)
                            value += x[(r * inputs + (own_x ? j : 0)) * k + i] *
                                     matrix[(e * n + c) * k + i];
                        sum[r * n + c] += weights[r * top + j] * value;
                    }
            auto a = args_of<keel_expert_matmul_args>();
            a.x = bench.floats({m, static_cast<int64_t>(inputs), k}, x);
            a.w = w;
            a.index = bench.ints({m, top}, index);
            a.experts = experts;
            a.out = bench.blank({m, top, n});
            REQUIRE(bench.backend().expert_matmul(bench.ctx(), &a) == KEEL_OK);
            require_close(bench.read(a.out), y);
            a.features = KEEL_EXPERTS_SUM | KEEL_EXPERTS_ACCUMULATE;
            a.weights = bench.floats({m, top}, weights);
            a.out = bench.floats({m, n}, old);
            REQUIRE(bench.backend().expert_matmul(bench.ctx(), &a) == KEEL_OK);
            require_close(bench.read(a.out), sum);
        }
    }
}

TEST_CASE("an index without an expert gives NaN in its own row only") {
    Bench bench;
    auto a = args_of<keel_expert_matmul_args>();
    a.x = bench.floats({3, 1, 2}, {1, 2, 3, 4, 5, 6});
    a.w = bench.floats({2, 2}, {1, 0, 0, 1});
    a.index = bench.ints({3, 1}, {-1, 1, 2});
    a.experts = 2;
    a.out = bench.blank({3, 1, 1});
    REQUIRE(bench.backend().expert_matmul(bench.ctx(), &a) == KEEL_OK);
    const Values out = bench.read(a.out);
    CHECK(std::isnan(out[0]));
    CHECK(out[1] == 4);
    CHECK(std::isnan(out[2]));
}

TEST_CASE("ops of experts refuse numbers that contradict each other") {
    Bench bench;
    auto c = args_of<keel_choose_experts_args>();
    c.logits = bench.blank({2, 3});
    c.index = bench.ints({2, 4}, Ints(8));
    c.weights = bench.blank({2, 4});
    CHECK(bench.backend().choose_experts(bench.ctx(), &c) == KEEL_E_INVALID_ARG);
    CHECK_THAT(bench.error(), Catch::Matchers::Contains("larger than the number of experts"));
    auto a = args_of<keel_expert_matmul_args>();
    a.x = bench.blank({2, 3, 4}); // neither 1 nor the number of chosen experts
    a.w = bench.blank({6, 4});
    a.index = bench.ints({2, 2}, Ints(4));
    a.experts = 3;
    a.out = bench.blank({2, 2, 2});
    CHECK(bench.backend().expert_matmul(bench.ctx(), &a) == KEEL_E_INVALID_ARG);
    a.x = bench.blank({2, 1, 4});
    a.experts = 2; // 4 rows, but the weight has 6
    CHECK(bench.backend().expert_matmul(bench.ctx(), &a) == KEEL_E_INVALID_ARG);
}
