// Tests of a few rows of x with row-major weights in f32, f16 and bf16. Kernels handle several rows
// of W together, and threads divide the matrix at any row.
#include "cpu_fixture.hpp"

#include <map>
#include <random>

using namespace keel;
using namespace keel::test;

namespace {

constexpr int64_t rows = 301, cols = 515; // not multiples of any kernel's sizes

// Returns numbers from 1/2 to 2 as bytes of any of the three dtypes.
const std::vector<uint8_t> &weights(keel_dtype dtype) {
    static std::map<keel_dtype, std::vector<uint8_t>> made;
    std::vector<uint8_t> &all = made[dtype];
    if (!all.empty()) return all;
    std::mt19937 random(5);
    for (int64_t i = 0; i < rows * cols; ++i) {
        const auto r = static_cast<uint32_t>(random());
        const uint32_t sign = r & 1;
        const uint32_t f32 = sign << 31 | (0x3f000000U + (r >> 8) % 0x1000000U);
        const uint32_t bits = dtype == KEEL_DTYPE_F32 ? f32
                              : dtype == KEEL_DTYPE_BF16
                                  ? f32 >> 16
                                  : sign << 15 | (0x3800U + (r >> 8) % 0x800U);
        for (size_t b = 0; b < keel_dtype_bytes(dtype); ++b)
            all.push_back(static_cast<uint8_t>(bits >> (8 * b)));
    }
    return all;
}

std::vector<float> product(const Variant &v, const char *compute, uint32_t threads,
                           keel_dtype dtype, const std::vector<float> &x, int64_t m) {
    Context c(v, compute, threads);
    const keel_tensor in = c.tensor(KEEL_DTYPE_F32, m, cols), w = c.tensor(dtype, rows, cols),
                      out = c.tensor(KEEL_DTYPE_F32, m, rows);
    c.write(in, std::vector<float>(x.begin(), x.begin() + m * cols));
    c.write(w, weights(dtype));
    const keel_matmul_args a = matmul_args(in, w, out);
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    return c.read<float>(out);
}

std::vector<float> numbers(int64_t n) {
    std::mt19937 random(6);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(n));
    for (float &f : x) f = normal(random);
    return x;
}

} // namespace

TEST_CASE("products of few rows are bitwise the same for any number of threads") {
    const std::vector<float> x = numbers(8 * cols);
    for (const Variant &v : variants())
        for (const char *compute : {"exact", "fast"})
            for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16})
                for (const int64_t m : {1, 2, 3, 4, 8}) {
                    const std::vector<float> one = product(v, compute, 1, dtype, x, m);
                    for (const uint32_t threads : {2U, 3U, 5U}) {
                        INFO(v.word << ' ' << compute << ' ' << keel_dtype_name(dtype) << " m " << m
                                    << ", " << threads << " threads");
                        CHECK(product(v, compute, threads, dtype, x, m) == one);
                    }
                }
}

TEST_CASE("in 512-bit vectors, up to four rows of x give the same results as each row alone") {
    const std::vector<float> x = numbers(4 * cols);
    for (const Variant &v : variants()) {
        if (v.few != "avx512" && v.few != "vnni") continue;
        for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16}) {
            std::vector<float> alone;
            for (int64_t i = 0; i < 4; ++i) {
                const std::vector<float> y = product(
                    v, "exact", 2, dtype, {x.begin() + i * cols, x.begin() + (i + 1) * cols}, 1);
                alone.insert(alone.end(), y.begin(), y.end());
            }
            for (const int64_t m : {2, 3, 4}) {
                INFO(v.word << ' ' << keel_dtype_name(dtype) << " m " << m);
                CHECK(product(v, "exact", 2, dtype, x, m) ==
                      std::vector<float>(alone.begin(), alone.begin() + m * rows));
            }
        }
    }
}
