// Tests of few rows of x with long rows of 16-bit weights. Here x may be rounded to f16
// (algo/round_f16.inl).
#include "cpu_fixture.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace keel;
using namespace keel::test;

TEST_CASE("a large activation does not reduce the precision of small ones in a long row") {
    constexpr int64_t k = 4128;
    for (const Variant &v : variants()) {
        INFO(v.word);
        for (const float small : {1e-2F, 1e-5F, 1e-7F}) {
            INFO(small);
            Context c(v, "fast");
            const keel_tensor x = c.tensor(KEEL_DTYPE_F32, 1, k),
                              w = c.tensor(KEEL_DTYPE_F16, 3, k),
                              out = c.tensor(KEEL_DTYPE_F32, 1, 3);
            std::vector<float> xs(k);
            for (size_t i = 0; i < k; ++i)
                xs[i] = small * (1.0F + static_cast<float>(i % 7) / 8.0F);
            xs[100] = 1.0F;                          // the weight for this element is 0
            std::vector<uint16_t> ws(3 * k, 0x3c00); // the f16 number 1
            for (size_t row = 0; row < 3; ++row) ws[row * k + 100] = 0;
            c.write(x, xs);
            c.write(w, ws);
            keel_matmul_args a = matmul_args(x, w, out);
            REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
            double sum = 0;
            for (size_t i = 0; i < k; ++i) sum += i == 100 ? 0.0 : static_cast<double>(xs[i]);
            for (const float y : c.read<float>(out))
                CHECK(std::abs(y / sum - 1) < 6e-4); // 2^-11 for the rounding, and the f32 sums
        }
    }
}
