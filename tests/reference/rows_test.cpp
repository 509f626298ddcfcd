#include "reference/bench.hpp"

using namespace keel::test;

namespace {

keel_move_args moved(const keel_tensor *x, const keel_tensor *out) {
    auto a = args_of<keel_move_args>();
    a.x = x;
    a.out = out;
    return a;
}

constexpr double inf = INFINITY;
const double nan_value = std::nan("");

} // namespace

TEST_CASE("softmax sums to one, does not overflow, and gives zeros for a row of -inf") {
    Bench bench;
    const auto a = moved(bench.floats({4, 3}, {0, std::log(2.0), std::log(5.0), 1000, 1000, -1000,
                                               -inf, -inf, -inf, 0, -inf, nan_value}),
                         bench.blank({4, 3}));
    REQUIRE(bench.backend().softmax(bench.ctx(), &a) == KEEL_OK);
    require_close(bench.read(a.out),
                  {0.125, 0.25, 0.625, 0.5, 0.5, 0, 0, 0, 0, nan_value, nan_value, nan_value});
}

TEST_CASE("cast rounds to nearest even and quantizes as GGML does") {
    Bench bench;
    const auto *x = bench.floats({1, 4}, {1 + 1.0 / 2048, 1 + 3.0 / 2048, 65520, 6e-8});
    const auto half = moved(x, bench.blank({1, 4}, KEEL_DTYPE_F16));
    REQUIRE(bench.backend().cast(bench.ctx(), &half) == KEEL_OK);
    CHECK(bench.read(half.out) == Values{1, 1 + 2.0 / 1024, inf, 0x1p-24});
    const auto brain = moved(x, bench.blank({1, 4}, KEEL_DTYPE_BF16));
    REQUIRE(bench.backend().cast(bench.ctx(), &brain) == KEEL_OK);
    CHECK(bench.read(brain.out)[0] == 1);

    Values ramp; // the largest magnitude is 127, so the scale is 1 and the codes are the values
    for (int i = 0; i < 32; ++i) ramp.push_back(i == 5 ? -127 : i);
    const auto q8 = moved(bench.floats({1, 32}, ramp), bench.blank({1, 32}, KEEL_DTYPE_Q8_0));
    REQUIRE(bench.backend().cast(bench.ctx(), &q8) == KEEL_OK);
    CHECK(bench.read(q8.out) == ramp);

    // the first largest magnitude is -8, so the scale is 1, the codes 0..15 stand for -8..7, and 8
    // becomes 7
    Values small;
    for (int i = 0; i < 32; ++i) small.push_back(i % 16 - 8);
    small[31] = 8;
    const auto q4 = moved(bench.floats({1, 32}, small), bench.blank({1, 32}, KEEL_DTYPE_Q4_0));
    REQUIRE(bench.backend().cast(bench.ctx(), &q4) == KEEL_OK);
    small[31] = 7;
    CHECK(bench.read(q4.out) == small);
    const auto back = moved(q4.out, bench.blank({1, 32}));
    REQUIRE(bench.backend().cast(bench.ctx(), &back) == KEEL_OK);
    CHECK(bench.read(back.out) == small);

    const auto between = moved(q8.out, bench.blank({1, 32}, KEEL_DTYPE_Q4_0));
    CHECK(bench.backend().cast(bench.ctx(), &between) == KEEL_E_UNSUPPORTED);
}

TEST_CASE("a block that cannot hold a value is read as NaN") {
    Bench bench;
    for (const keel_dtype dtype : {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        for (const double bad : {nan_value, inf, -3e38}) {
            Values x(64, 1.0);
            x[40] = bad;
            const auto a = moved(bench.floats({1, 64}, x), bench.blank({1, 64}, dtype));
            REQUIRE(bench.backend().cast(bench.ctx(), &a) == KEEL_OK);
            const Values y = bench.read(a.out);
            CHECK(std::isfinite(y[31]));
            CHECK(std::isnan(y[32]));
            CHECK(std::isnan(y[63]));
        }
    }
}

TEST_CASE("copy, transpose and zero move bytes of any dtype") {
    Bench bench;
    const Values x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const auto copied =
        moved(bench.floats({2, 3, 2}, x, KEEL_DTYPE_BF16), bench.blank({2, 3, 2}, KEEL_DTYPE_BF16));
    REQUIRE(bench.backend().copy(bench.ctx(), &copied) == KEEL_OK);
    CHECK(bench.read(copied.out) == x);
    const auto turned = moved(copied.x, bench.blank({3, 2, 2}, KEEL_DTYPE_BF16));
    REQUIRE(bench.backend().transpose(bench.ctx(), &turned) == KEEL_OK);
    CHECK(bench.read(turned.out) == Values{1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12});
    const auto cleared = moved(nullptr, copied.out);
    REQUIRE(bench.backend().zero(bench.ctx(), &cleared) == KEEL_OK);
    CHECK(bench.read(copied.out) == Values(12, 0.0));
    float gap = 0;
    bench.backend().buffer_read(bench.ctx(), copied.out->buffer, copied.out->offset + 4, &gap, 4);
    CHECK(std::isnan(gap)); // the gap between rows was not written
}

TEST_CASE(
    "argmax gives the lowest place of the largest value, and -1 for an empty or not finite row") {
    Bench bench;
    auto a = args_of<keel_rows_args>();
    a.x = bench.floats(
        {5, 4}, {1, 7, 7, 2, -1, -inf, -3, -1, 1, nan_value, 3, 4, 0, -0.0, 0, 0, 1, inf, 3, 4});
    a.index = bench.blank({5}, KEEL_DTYPE_I32);
    REQUIRE(bench.backend().argmax_rows(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read_ints(a.index) == Ints{1, -1, -1, 0, -1});
    a.x = bench.blank({2, 0});
    a.index = bench.blank({2}, KEEL_DTYPE_I32);
    REQUIRE(bench.backend().argmax_rows(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read_ints(a.index) == Ints{-1, -1});
}

TEST_CASE("top_k sorts values down and ties by place, and a NaN makes the whole row invalid") {
    Bench bench;
    auto a = args_of<keel_rows_args>();
    a.x = bench.floats({2, 5}, {3, 9, 9, -inf, 4, 1, 2, nan_value, 4, 5});
    a.index = bench.blank({2, 3}, KEEL_DTYPE_I32);
    a.values = bench.blank({2, 3});
    REQUIRE(bench.backend().top_k_rows(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read_ints(a.index) == Ints{1, 2, 4, -1, -1, -1});
    require_close(bench.read(a.values), {9, 9, 4, nan_value, nan_value, nan_value}, 0);
    a.index = bench.blank({2, 6}, KEEL_DTYPE_I32);
    a.values = bench.blank({2, 6});
    CHECK(bench.backend().top_k_rows(bench.ctx(), &a) == KEEL_E_INVALID_ARG);
}
