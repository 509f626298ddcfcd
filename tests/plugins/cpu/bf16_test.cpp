// Tests of products in bf16: the tiles of AMX and their emulation, and the blocks into which
// kernels divide a product.
#include "cpu/kernels/isa/tiles_emulated.hpp"
#include "cpu_fixture.hpp"
#include "support/skip.hpp"

#include <cmath>
#include <random>

using namespace keel;
using namespace keel::test;
namespace tiles = keel_cpu::tiles_emulated;

namespace {

struct Config { // the operand of LDTILECFG
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void shape(int tile, uint8_t n, uint16_t bytes) { rows[tile] = n, row_bytes[tile] = bytes; }
};

uint16_t bf16(float x) { // x must be a number that bf16 can hold
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<uint16_t>(bits >> 16);
}

// Returns `start` plus the product of one row of x, with `pairs` pairs of columns, and one row of
// W.
float dot(const std::vector<float> &x, const std::vector<float> &w, float start) {
    Config config;
    const auto pairs = static_cast<uint8_t>(x.size() / 2);
    config.shape(0, 1, 4), config.shape(1, 1, static_cast<uint16_t>(4 * pairs)),
        config.shape(2, pairs, 4);
    tiles::configure(&config);
    std::vector<uint16_t> a, b;
    for (float f : x) a.push_back(bf16(f));
    for (float f : w) b.push_back(bf16(f));
    tiles::load(0, &start, 4);
    tiles::load(1, a.data(), 64);
    tiles::load(2, b.data(), 4);
    tiles::dot_bf16(0, 1, 2);
    float sum = 0;
    tiles::store(0, &sum, 4);
    tiles::configure(nullptr);
    return sum;
}

// Returns the largest error of a product of many rows, relative to the sum of magnitudes.
double worst_of(const Variant &v, keel_dtype dtype, int64_t m, int64_t n, int64_t k) {
    Context c(v, "fast");
    std::mt19937 random(static_cast<uint32_t>(m + n + k));
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(m * k)), values(static_cast<size_t>(n * k));
    std::vector<uint16_t> weights(values.size());
    for (float &f : x) f = normal(random);
    for (size_t i = 0; i < values.size(); ++i) {
        const auto bits = static_cast<uint16_t>(random() % 0x400); // bits of the mantissa
        const uint16_t sign = random() % 2 ? 0x8000 : 0;
        if (dtype == KEEL_DTYPE_F16) {
            weights[i] = static_cast<uint16_t>(0x3800 | bits | sign); // numbers from 0.5 to 1
            values[i] = (0.5f + static_cast<float>(bits) / 2048.0f) * (sign != 0 ? -1.0f : 1.0f);
        } else {
            values[i] =
                (1.0f + static_cast<float>(bits % 128) / 128.0f) * (sign != 0 ? -1.0f : 1.0f);
            weights[i] = bf16(values[i]);
        }
    }
    const keel_tensor tx = c.tensor(KEEL_DTYPE_F32, m, k, 1), tw = c.tensor(dtype, n, k, 1),
                      out = c.tensor(KEEL_DTYPE_F32, m, n, 3);
    c.write(tx, x);
    c.write(tw, weights);
    keel_matmul_args a{};
    a.h = KEEL_HEADER(keel_matmul_args);
    a.x = &tx, a.w = &tw, a.out = &out;
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    const std::vector<float> y = c.read<float>(out);
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < k; ++l) {
                const double term = static_cast<double>(x[static_cast<size_t>(i * k + l)]) *
                                    static_cast<double>(values[static_cast<size_t>(j * k + l)]);
                sum += term, magnitude += std::fabs(term);
            }
            const double off =
                std::fabs(static_cast<double>(y[static_cast<size_t>(i * n + j)]) - sum) / magnitude;
            if (!(off <= worst)) worst = off;
        }
    return worst;
}

} // namespace

TEST_CASE(
    "an emulated tile multiplies pairs, sums even and odd columns separately, and adds them last") {
    CHECK(dot({1, 2, 3, 4}, {5, 6, 7, 8}, 100) == 170);
    CHECK(dot({3, 0}, {5, 0}, -15) == 0);
    // 2^24 + 1 rounds to even in one sum. The other sum keeps the 1 until both sums are added.
    const float large = 16777216.0f;
    CHECK(dot({large, 1, 0, 1}, {1, 1, 0, 1}, 0) == large + 2);
    CHECK(dot({large, 0, 1, 0, 1, 0}, {1, 0, 1, 0, 1, 0}, 0) == large);
    CHECK(std::isnan(dot({INFINITY, 1}, {0, 1}, 0)));
}

TEST_CASE(
    "an emulated tile treats subnormal inputs as zero, and gives zero for subnormal results") {
    const float least = std::ldexp(1.0f, -126), half = std::ldexp(1.0f, -63);
    CHECK(dot({least, 0}, {1, 0}, 0) == least);
    CHECK(dot({least / 2, 0}, {1, 0}, 0) == 0);   // a subnormal input counts as zero
    CHECK(dot({half, 0}, {half / 2, 0}, 0) == 0); // a subnormal result counts as zero
    CHECK(dot({1, 0}, {1, 0}, least / 2) == 1);
    CHECK(std::signbit(dot({-least / 2, 0}, {1, 0}, -0.0f)) == std::signbit(-0.0f + 0.0f));
}

TEST_CASE("an emulated tile keeps its configured shape") {
    Config config;
    config.shape(0, 2, 8);
    tiles::configure(&config);
    float in[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, out[3][3] = {};
    tiles::load(0, in, sizeof in[0]);
    tiles::store(0, out, sizeof out[0]);
    CHECK((out[0][0] == 1 && out[0][1] == 2 && out[1][0] == 4 && out[1][1] == 5));
    CHECK((out[0][2] == 0 && out[1][2] == 0 && out[2][0] == 0));
    tiles::zero(0);
    tiles::store(0, out, sizeof out[0]);
    CHECK((out[0][0] == 0 && out[1][1] == 0));
    tiles::configure(nullptr); // after the release, nothing is stored
    tiles::store(0, in, sizeof in[0]);
    CHECK(in[0][0] == 1);
}

TEST_CASE("products in bf16 are right on both sides of every block size") {
    bool any = false;
    for (const Variant &v : variants()) {
        if (v.isa != "amx" && v.isa != "avx512bf16") continue;
        any = true;
        for (keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_BF16}) {
            // bf16 has 8 bits, so rounding an operand changes it by at most 2^-8 of its value.
            const double bound = dtype == KEEL_DTYPE_F16 ? 8e-3 : 4e-3;
            INFO(v.word << ' ' << keel_dtype_name(dtype));
            for (int64_t m : {5, 7, 8, 9, 11, 12, 13, 16, 17, 31, 32, 33,
                              49}) // around the sizes of blocks of x: 12 rows, 16 and 32 rows
                CHECK(worst_of(v, dtype, m, 33, 70) <= bound);
            for (int64_t n : {15, 16, 31, 32, 63, 65, 255, 257,
                              // around the sizes of panels, of pairs of panels, and of the rows in
                              // a call
                              288})
                CHECK(worst_of(v, dtype, 10, n, 34) <= bound);
            for (int64_t k : {1, 31, 32, 33, 511, 512, 513, 1023, 1024,
                              // around the sizes of tiles and of the columns that are unpacked at a
                              // time
                              1025})
                CHECK(worst_of(v, dtype, 18, 17, k) <= bound);
            for (int64_t k : {1, 32, 33, 300}) // few rows of x
                CHECK(worst_of(v, dtype, 8, 53, k) <= bound);
        }
        CHECK(worst_of(v, KEEL_DTYPE_BF16, 26, 96, 2100) <=
              4e-3); // whole tiles that are added to earlier sums
        // more rows than x has in one piece
        CHECK(worst_of(v, KEEL_DTYPE_BF16, 770, 16, 32) <= 4e-3);
        // The output is too large for the caches. Its rows begin at cache lines, or at any place.
        CHECK(worst_of(v, KEEL_DTYPE_BF16, 33, 32000, 34) <= 4e-3);
        CHECK(worst_of(v, KEEL_DTYPE_BF16, 40, 26300, 34) <= 4e-3);
    }
    if (!any) skip("no instruction set here has products of bf16 for many rows");
}
