#include "numbers/quantize.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

using namespace keel;
using Catch::Matchers::Contains;
using keel::test::error_text;

namespace {

using Bytes = std::vector<uint8_t>;

std::vector<float> normal_values(size_t count, uint32_t seed, float scale) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> x(count);
    for (float &value : x) value = normal(random);
    return x;
}

} // namespace

TEST_CASE("rows are converted the same with and without threads, from unaligned sources") {
    constexpr size_t rows = 700;
    constexpr size_t columns = 4096 + 32;
    const auto x = normal_values(rows * columns, 3, 0.02F);
    std::vector<uint8_t> source(rows * columns * 2 + 1);
    for (size_t i = 0; i < x.size(); ++i) {
        const uint16_t half = f32_to_bf16(x[i]);
        source[1 + 2 * i] = half & 255;
        source[2 + 2 * i] = half >> 8;
    }
    const ParallelFor two_threads = [](size_t tasks, const std::function<void(size_t)> &body) {
        const auto half = [&](size_t first) {
            for (size_t task = first; task < tasks; task += 2) body(task);
        };
        std::thread other(half, 1);
        half(0);
        other.join();
    };
    for (const keel_dtype type :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        Bytes here(rows * keel_dtype_row_bytes(type, columns));
        Bytes there(here.size());
        convert_rows(KEEL_DTYPE_BF16, source.data() + 1, type, here.data(), rows, columns, "w");
        convert_rows(KEEL_DTYPE_BF16, source.data() + 1, type, there.data(), rows, columns, "w",
                     two_threads);
        CHECK(here == there);
        std::vector<float> widened(columns);
        convert_to_f32(KEEL_DTYPE_BF16, source.data() + 1 + columns * 2 * (rows - 1),
                       widened.data(), columns);
        const Bytes last(here.end() -
                             static_cast<std::ptrdiff_t>(keel_dtype_row_bytes(type, columns)),
                         here.end());
        Bytes expected(last.size());
        REQUIRE(convert_from_f32(type, widened.data(), expected.data(), columns));
        CHECK(last == expected);
    }
}

TEST_CASE("rows that cannot be converted are reported with the tensor and the row") {
    std::vector<float> x(3 * 64, 1.0F);
    Bytes out(1000);
    const auto convert = [&](size_t rows, size_t columns) {
        convert_rows(KEEL_DTYPE_F32, x.data(), KEEL_DTYPE_Q4_0, out.data(), rows, columns,
                     "model.norm.weight");
    };
    CHECK_THAT(error_text([&] { convert(3, 48); }), Contains("model.norm.weight") &&
                                                        Contains("48") && Contains("q4_0") &&
                                                        Contains("multiple of 32"));
    x[64 + 7] = std::nanf("");
    x[128 + 7] = std::nanf("");
    CHECK_THAT(error_text([&] { convert(3, 64); }),
               Contains("model.norm.weight: row 1 ") && Contains("q4_0"));
    const auto unknown = [&] {
        convert_rows(KEEL_DTYPE_F32, x.data(), KEEL_DTYPE_I32, out.data(), 1, 32, "w");
    };
    CHECK_THAT(error_text(unknown, ErrorKind::internal), Contains("i32"));
    CHECK_NOTHROW(convert(0, 64));
    CHECK_NOTHROW(convert(3, 0));
}
