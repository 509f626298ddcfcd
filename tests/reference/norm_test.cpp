#include "reference/bench.hpp"

using namespace keel::test;

namespace {

Values naive_rms(const Values &x, const Values &weight, double eps) {
    Values out;
    const size_t n = weight.size();
    for (size_t r = 0; r < x.size() / n; ++r) {
        double squares = 0;
        for (size_t i = 0; i < n; ++i) squares += x[r * n + i] * x[r * n + i];
        for (size_t i = 0; i < n; ++i)
            out.push_back(x[r * n + i] / std::sqrt(squares / static_cast<double>(n) + eps) *
                          weight[i]);
    }
    return out;
}

constexpr float eps = 1e-3F;

keel_norm_args norm_args(const keel_tensor *x, const keel_tensor *weight, const keel_tensor *out) {
    auto a = args_of<keel_norm_args>();
    a.x = x;
    a.weight = weight;
    a.out = out;
    a.eps = eps;
    return a;
}

} // namespace

TEST_CASE("rms_norm divides by the root of the mean square") {
    Bench bench;
    auto a = norm_args(bench.floats({1, 4}, {3, -3, 3, 3}), bench.floats({4}, {1, 1, 2, 0}),
                       bench.blank({1, 4}));
    a.eps = 7; // sqrt(9 + 7) = 4
    REQUIRE(bench.backend().rms_norm(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read(a.out) == Values{0.75, -0.75, 1.5, 0});
}

TEST_CASE("rms_norm agrees with float64 for matrices and heads") {
    Bench bench;
    const Values weight = random_values(17, 2);
    const Values x = random_values(6 * 17, 1);
    for (const Dims &shape : {Dims{6, 17}, Dims{2, 3, 17}}) {
        const auto a =
            norm_args(bench.floats(shape, x), bench.floats({17}, weight), bench.blank(shape));
        REQUIRE(bench.backend().rms_norm(bench.ctx(), &a) == KEEL_OK);
        require_close(bench.read(a.out), naive_rms(x, weight, static_cast<double>(eps)));
        const auto in_place = norm_args(a.x, a.weight, a.x);
        REQUIRE(bench.backend().rms_norm(bench.ctx(), &in_place) == KEEL_OK);
        require_close(bench.read(a.x), naive_rms(x, weight, static_cast<double>(eps)));
    }
}

TEST_CASE("add_rms_norm adds to the residual first and keeps the sum") {
    Bench bench;
    const Values x = random_values(33, 1), residual = random_values(33, 2),
                 weight = random_values(11, 3);
    auto a = norm_args(bench.floats({3, 11}, x), bench.floats({11}, weight), bench.blank({3, 11}));
    a.residual = bench.floats({3, 11}, residual);
    REQUIRE(bench.backend().add_rms_norm(bench.ctx(), &a) == KEEL_OK);
    Values sum;
    for (size_t i = 0; i < x.size(); ++i) sum.push_back(x[i] + residual[i]);
    require_close(bench.read(a.residual), sum);
    require_close(bench.read(a.out), naive_rms(sum, weight, static_cast<double>(eps)), 4e-7);
}

TEST_CASE("layer_norm subtracts the mean and divides by the population's deviation") {
    Bench bench;
    auto a = norm_args(bench.floats({1, 4}, {1, 3, 5, 7}), bench.floats({4}, {1, 2, 1, 1}),
                       bench.blank({1, 4}));
    a.eps = 4; // the mean is 4 and the variance 5, so the divisor is 3
    REQUIRE(bench.backend().layer_norm(bench.ctx(), &a) == KEEL_OK);
    require_close(bench.read(a.out), {-1, -2.0 / 3, 1.0 / 3, 1});
    a.bias = bench.floats({4}, {10, 20, 30, 40});
    REQUIRE(bench.backend().layer_norm(bench.ctx(), &a) == KEEL_OK);
    require_close(bench.read(a.out), {9, 20 - 2.0 / 3, 30 + 1.0 / 3, 41});
}

TEST_CASE("results are rounded to the activation dtype") {
    Bench bench;
    const auto a =
        norm_args(bench.floats({1, 2}, {1, 1}, KEEL_DTYPE_F16),
                  bench.floats({2}, {1.0 / 3, 2.0 / 3}), bench.blank({1, 2}, KEEL_DTYPE_F16));
    REQUIRE(bench.backend().rms_norm(bench.ctx(), &a) == KEEL_OK);
    const double unit = 1 / std::sqrt(1 + static_cast<double>(eps));
    require_close(bench.read(a.out), {unit / 3, unit * 2 / 3}, 4e-4);
    for (const double value : bench.read(a.out))
        CHECK(value * 4096 == std::floor(value * 4096)); // the number has 11 bits
}
