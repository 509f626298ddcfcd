#include "numbers/convert.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace keel;
using Catch::Matchers::Contains;
using keel::test::error_text;

namespace {

using Bytes = std::vector<uint8_t>;

// Returns the value of a binary16 number by its definition, in float64.
double f16_value(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

Bytes quantize(keel_dtype type, const std::vector<float> &x) {
    Bytes out(keel_dtype_row_bytes(type, x.size()));
    REQUIRE(convert_from_f32(type, x.data(), out.data(), x.size()));
    return out;
}

// GGML's quantize_row_q8_0_ref and quantize_row_q4_0_ref, written in the same way.
Bytes ggml_q8_0(const std::vector<float> &x) {
    Bytes out;
    for (size_t b = 0; b < x.size(); b += 32) {
        float amax = 0.0f;
        for (size_t j = 0; j < 32; ++j) amax = std::max(amax, std::fabs(x[b + j]));
        const float d = amax / 127;
        const float id = d != 0 ? 1.0f / d : 0.0f;
        const uint16_t half = f32_to_f16(d);
        out.push_back(half & 255);
        out.push_back(half >> 8);
        for (size_t j = 0; j < 32; ++j)
            out.push_back(static_cast<uint8_t>(static_cast<int8_t>(std::round(x[b + j] * id))));
    }
    return out;
}

Bytes ggml_q4_0(const std::vector<float> &x) {
    Bytes out;
    for (size_t b = 0; b < x.size(); b += 32) {
        float amax = 0.0f;
        float max = 0.0f;
        for (size_t j = 0; j < 32; ++j) {
            if (amax < std::fabs(x[b + j])) {
                amax = std::fabs(x[b + j]);
                max = x[b + j];
            }
        }
        const float d = max / -8;
        const float id = d != 0 ? 1.0f / d : 0.0f;
        const uint16_t half = f32_to_f16(d);
        out.push_back(half & 255);
        out.push_back(half >> 8);
        for (size_t j = 0; j < 16; ++j) {
            const float x0 = x[b + j] * id;
            const float x1 = x[b + 16 + j] * id;
            const int low = std::min<int8_t>(15, static_cast<int8_t>(x0 + 8.5f));
            const int high = std::min<int8_t>(15, static_cast<int8_t>(x1 + 8.5f));
            out.push_back(static_cast<uint8_t>(low | (high << 4)));
        }
    }
    return out;
}

std::vector<float> normal_values(size_t count, uint32_t seed, float scale) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> x(count);
    for (float &value : x) value = normal(random);
    return x;
}

} // namespace

TEST_CASE("every f16 converts to the f32 of the same value and back") {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float value = f16_to_f32(half);
        if ((half & 0x7FFF) > 0x7C00) {
            REQUIRE(std::isnan(value));
            REQUIRE((f32_to_f16(value) & 0x7E00) == 0x7E00);
        } else if ((half & 0x7FFF) == 0x7C00) {
            REQUIRE(std::isinf(value));
            REQUIRE(f32_to_f16(value) == half);
        } else {
            REQUIRE(static_cast<double>(value) == f16_value(half));
            REQUIRE(std::signbit(value) == (half >= 0x8000));
            REQUIRE(f32_to_f16(value) == half);
        }
    }
}

TEST_CASE("f32 to f16 rounds to the nearest, ties to even, over the whole range") {
    const float infinity = std::numeric_limits<float>::infinity();
    for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
        const auto low = static_cast<uint16_t>(bits);
        const auto high =
            static_cast<uint16_t>(bits + 1); // the last number is infinity, which begins at 65520
        const double top = high == 0x7C00 ? 65536.0 : f16_value(high);
        const auto middle =
            // exact, because f32 has more bits than f16
            static_cast<float>((f16_value(low) + top) / 2);
        const uint16_t even = (low & 1) == 0 ? low : high;
        REQUIRE(f32_to_f16(middle) == even);
        REQUIRE(f32_to_f16(-middle) == (even | 0x8000));
        REQUIRE(f32_to_f16(std::nextafter(middle, 0.0F)) == low);
        REQUIRE(f32_to_f16(std::nextafter(middle, infinity)) == high);
    }
    CHECK(f32_to_f16(1e-45F) == 0);
    CHECK(f32_to_f16(-0.0F) == 0x8000);
    CHECK(f32_to_f16(1e30F) == 0x7C00);
    CHECK(f32_to_f16(-infinity) == 0xFC00);
}

TEST_CASE("f32 to bf16 rounds to the nearest, ties to even, and keeps NaN") {
    const auto from_bits = [](uint32_t bits) { return f32_to_bf16(std::bit_cast<float>(bits)); };
    CHECK(from_bits(0x3F800000) == 0x3F80);
    CHECK(from_bits(0x3F808000) == 0x3F80); // a tie, which rounds to even
    CHECK(from_bits(0x3F818000) == 0x3F82);
    CHECK(from_bits(0x3F808001) == 0x3F81);
    CHECK(from_bits(0x3F807FFF) == 0x3F80);
    CHECK(from_bits(0x7F7FFFFF) == 0x7F80); // rounds to infinity
    CHECK(from_bits(0xFF800000) == 0xFF80);
    // a NaN stays a NaN even if its payload is only in the lower half
    CHECK(from_bits(0x7F800001) == 0x7FC0);
    CHECK(from_bits(0x00000001) == 0);
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const float value = bf16_to_f32(static_cast<uint16_t>(bits));
        if (!std::isnan(value)) REQUIRE(f32_to_bf16(value) == bits);
    }
}

TEST_CASE("q8_0 blocks agree with blocks computed by hand") {
    std::vector<float> x(32, 0.0F);
    x[0] = 127.0F; // so d is 1
    x[1] = 0.5F;   // ties round away from zero
    x[2] = -0.5F;
    x[3] = 1.5F;
    x[4] = 2.5F;
    x[5] = -2.5F;
    x[6] = 0.49999997F; // the largest float below one half
    x[31] = -127.0F;
    Bytes expected(34, 0);
    expected[1] = 0x3C; // 1.0 in f16
    const std::array<int8_t, 7> values = {127, 1, -1, 2, 3, -3, 0};
    for (size_t i = 0; i < values.size(); ++i) expected[2 + i] = static_cast<uint8_t>(values[i]);
    expected[33] = static_cast<uint8_t>(-127);
    CHECK(quantize(KEEL_DTYPE_Q8_0, x) == expected);
    CHECK(quantize(KEEL_DTYPE_Q8_0, std::vector<float>(32, 0.0F)) == Bytes(34, 0));
}

TEST_CASE("q4_0 blocks agree with blocks computed by hand") {
    std::vector<float> x(32, 0.0F);
    x[0] = -8.0F; // the largest magnitude is negative, so d is 1
    x[1] = 7.0F;
    x[2] = 8.0F; // the same magnitude at a later place: the code 16 is limited to 15
    x[3] = 0.5F; // 8.5 + 0.5 = 9
    x[4] = -0.5F;
    x[16] = 1.0F;
    x[17] = -1.0F;
    Bytes expected(18, 0x88);
    expected[0] = 0x00;
    expected[1] = 0x3C;
    expected[2] = 0x90; // codes of elements 0 (0) and 16 (9)
    expected[3] = 0x7F; // codes of elements 1 (15) and 17 (7)
    expected[4] = 0x8F;
    expected[5] = 0x89;
    expected[6] = 0x88; // int(8.0): -0.5 rounds up to 0
    CHECK(quantize(KEEL_DTYPE_Q4_0, x) == expected);

    for (float &value : x) value = -value; // the largest magnitude is positive now, so d is -1
    expected[1] = 0xBC;
    CHECK(quantize(KEEL_DTYPE_Q4_0, x) == expected);

    Bytes zero(18, 0x88);
    zero[0] = 0x00;
    zero[1] = 0x80; // 0 / -8 is minus zero, in GGML too
    CHECK(quantize(KEEL_DTYPE_Q4_0, std::vector<float>(32, 0.0F)) == zero);
}

TEST_CASE("block types are bitwise equal to GGML's reference, with an error within one step") {
    for (const float scale : {0.02F, 1.0F, 3000.0F, 1e-6F, 1e-20F, 1e-37F}) {
        const auto x = normal_values(32 * 500, 7, scale);
        CHECK(quantize(KEEL_DTYPE_Q8_0, x) == ggml_q8_0(x));
        CHECK(quantize(KEEL_DTYPE_Q4_0, x) == ggml_q4_0(x));
    }
    const auto x = normal_values(32 * 500, 9, 1.0F);
    std::vector<float> y(x.size());
    // The bounds are relative to the block's largest value. For q8_0: half a step of 1/127 and the
    // rounding of the scale to 11 bits. For q4_0: a whole step of 1/8, because the side opposite to
    // the largest value ends one step earlier.
    for (const auto &[type, bound] :
         {std::pair<keel_dtype, float>{KEEL_DTYPE_Q8_0, 0.5F / 127 + 0x1p-11F},
          {KEEL_DTYPE_Q4_0, 1.0F / 8 + 0x1p-11F}}) {
        convert_to_f32(type, quantize(type, x).data(), y.data(), y.size());
        for (size_t b = 0; b < x.size(); b += 32) {
            float largest = 0;
            for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
            for (size_t i = b; i < b + 32; ++i) REQUIRE(std::fabs(x[i] - y[i]) <= largest * bound);
        }
    }
}

TEST_CASE("dequantizing uses scale, order and sign of a block") {
    std::array<float, 32> y{};
    Bytes q8(34, 0);
    q8[1] = 0xC0; // -2.0
    q8[2] = static_cast<uint8_t>(-128);
    q8[33] = 5;
    convert_to_f32(KEEL_DTYPE_Q8_0, q8.data(), y.data(), 32);
    CHECK(y[0] == 256.0F);
    CHECK(y[1] == 0.0F);
    CHECK(y[31] == -10.0F);
    Bytes q4(18, 0x88);
    q4[0] = 0x00;
    q4[1] = 0x38; // 0.5
    q4[2] = 0xF0;
    convert_to_f32(KEEL_DTYPE_Q4_0, q4.data(), y.data(), 32);
    CHECK(y[0] == -4.0F);
    CHECK(y[16] == 3.5F);
    CHECK(y[1] == 0.0F);
}

TEST_CASE("values that a block cannot hold are reported") {
    for (const keel_dtype type : {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -3e38F}) {
            std::vector<float> x(64, 1.0F);
            x[40] = bad;
            Bytes out(keel_dtype_row_bytes(type, 64));
            CHECK_FALSE(convert_from_f32(type, x.data(), out.data(), 64));
            std::vector<float> y(64, 5.0F);
            convert_to_f32(type, out.data(), y.data(), 64);
            CHECK(std::isnan(y[40]));
            CHECK(y[0] == Approx(1.0F).epsilon(0.01));
        }
    }
    std::vector<float> tiny(32, 1e-41F); // 1/scale would be infinite
    Bytes out(34);
    CHECK(convert_from_f32(KEEL_DTYPE_Q8_0, tiny.data(), out.data(), 32));
    CHECK(out == Bytes(34, 0));
}

TEST_CASE("types that do not hold real numbers are not converted") {
    float x[32] = {};
    CHECK_THAT(error_text([&] { convert_from_f32(KEEL_DTYPE_I32, x, x, 32); }, ErrorKind::internal),
               Contains("i32"));
    CHECK_THAT(error_text([&] { convert_to_f32(KEEL_DTYPE_NONE, x, x, 32); }, ErrorKind::internal),
               Contains("none"));
}
