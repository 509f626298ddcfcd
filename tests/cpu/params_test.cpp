// Parameters of the plugin that no instruction set decides: prefetch, copy, and words that none of them has.
#include "cpu_fixture.hpp"

#include <random>

using namespace keel;
using namespace keel::test;

namespace {

constexpr keel_dtype weight_dtypes[] = {KEEL_DTYPE_F32,  KEEL_DTYPE_F16,  KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0,
                                        KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K};

// Two joined matrices whose 16-bit halves are all small numbers, whatever the dtype makes of them.
struct Weight {
    Context &context;
    std::vector<uint8_t> file;
    keel_weight *weight = nullptr;

    Weight(Context &c, keel_dtype dtype, int64_t rows, int64_t cols, uint32_t use = KEEL_USE_MATMUL)
        : context(c) {
        const uint64_t bytes =
            static_cast<uint64_t>(rows) * keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols));
        file.resize(2 * bytes);
        std::mt19937 random(3);
        for (size_t i = 0; i < file.size(); ++i)
            file[i] = i % 2 == 0 ? static_cast<uint8_t>(random()) : 0x2c;
        keel_weight_source sources[2];
        const keel_weight_source *list[] = {&sources[0], &sources[1]};
        for (uint64_t i = 0; i < 2; ++i)
            sources[i] = {
                KEEL_HEADER(keel_weight_source), file.data(), file.size(), i * bytes, dtype, 0, rows, cols};
        const keel_weight_desc desc = {KEEL_HEADER(keel_weight_desc), list, 2,
                                       KEEL_JOIN_INTERLEAVE,          use,  512};
        REQUIRE(c->weight_prepare(c.get(), &desc, &weight) == KEEL_OK);
    }
    Weight(const Weight &) = delete;
    ~Weight() { context->weight_destroy(context.get(), weight); }
};

std::vector<float> product(Context &c, const Weight &w, int64_t m, int64_t n, int64_t k) {
    std::vector<float> values(static_cast<size_t>(m * k));
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
    const keel_tensor x = c.tensor(KEEL_DTYPE_F32, m, k), out = c.tensor(KEEL_DTYPE_F32, m, n);
    c.write(x, values);
    keel_matmul_args a = matmul_args(x, x, out);
    a.w = nullptr, a.weight = w.weight;
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    return c.read<float>(out);
}

} // namespace

TEST_CASE("prefetch changes no product of any type, by the kernels of few rows and of many") {
    for (const Variant &v : variants())
        for (const keel_dtype dtype : weight_dtypes) {
            INFO(v.word << ' ' << keel_dtype_name(dtype));
            const int64_t rows = 19, cols = 512;
            Context on(v, "fast", 2, "on"), off(v, "fast", 2, "off");
            const Weight with(on, dtype, rows, cols), without(off, dtype, rows, cols);
            for (const int64_t m : {1, 3, 7, 11, 24}) {
                const std::vector<float> y = product(on, with, m, 2 * rows, cols);
                CHECK(y == product(off, without, m, 2 * rows, cols));
                CHECK(y[0] != 0.0F);
            }
        }
}
