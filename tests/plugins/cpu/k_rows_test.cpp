// Tests of several rows of x with weights of K types. Kernels that handle rows together must sum in
// the same order as the kernel for a single row.
#include "cpu_fixture.hpp"

#include <random>

using namespace keel;
using namespace keel::test;

namespace {

// Returns random blocks. Only the f16 scales have limited values.
std::vector<uint8_t> random_blocks(keel_dtype dtype, size_t blocks) {
    const size_t bytes = keel_dtype_bytes(dtype);
    std::mt19937 random(3);
    std::vector<uint8_t> all(blocks * bytes);
    for (uint8_t &byte : all) byte = static_cast<uint8_t>(random());
    for (size_t b = 0; b < blocks; ++b)
        for (const size_t at :
             dtype == KEEL_DTYPE_Q6_K ? std::vector<size_t>{208} : std::vector<size_t>{0, 2}) {
            const auto half = static_cast<uint16_t>(0x2400 + random() % 0x800);
            std::memcpy(all.data() + b * bytes + at, &half, 2);
        }
    return all;
}

keel_weight *prepare(Context &c, keel_dtype dtype, int64_t rows, int64_t cols,
                     const std::vector<uint8_t> &file) {
    keel_weight_source s{};
    s.h = KEEL_HEADER(keel_weight_source);
    s.mapping = file.data(), s.mapping_bytes = file.size();
    s.dtype = dtype, s.rows = rows, s.cols = cols;
    const keel_weight_source *list[] = {&s};
    keel_weight_desc desc{};
    desc.h = KEEL_HEADER(keel_weight_desc);
    desc.sources = list, desc.n_sources = 1;
    desc.use = KEEL_USE_MATMUL, desc.max_m = 128;
    keel_weight *w = nullptr;
    REQUIRE(c->weight_prepare(c.get(), &desc, &w) == KEEL_OK);
    return w;
}

std::vector<float> product(Context &c, keel_weight *w, int64_t rows, const std::vector<float> &x,
                           int64_t m) {
    const keel_tensor in = c.tensor(KEEL_DTYPE_F32, m, static_cast<int64_t>(x.size()) / m, 3),
                      out = c.tensor(KEEL_DTYPE_F32, m, rows, 5);
    c.write(in, x);
    keel_matmul_args a{};
    a.h = KEEL_HEADER(keel_matmul_args);
    a.x = &in, a.weight = w, a.out = &out;
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    return c.read<float>(out);
}

} // namespace

TEST_CASE("with weights of K types, a row of x gives the same result alone and with other rows") {
    constexpr int64_t n = 19,
                      // the last group is not full, and five blocks are more than a panel's four
        k = 1280;
    for (const Variant &v : variants())
        for (const keel_dtype dtype : {KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K}) {
            Context c(v, "fast");
            const std::vector<uint8_t> file = random_blocks(dtype, n * k / 256);
            keel_weight *w = prepare(c, dtype, n, k, file);
            // If the set has bf16 kernels for many rows, these rows round differently.
            const int64_t most = v.word == v.few ? 71 : 5;
            std::mt19937 random(4);
            std::normal_distribution<float> normal;
            std::vector<float> x(static_cast<size_t>(most * k)), alone;
            for (float &f : x) f = normal(random);
            for (int64_t i = 0; i < most; ++i) {
                const std::vector<float> y =
                    product(c, w, n, {x.begin() + i * k, x.begin() + (i + 1) * k}, 1);
                alone.insert(alone.end(), y.begin(), y.end());
            }
            for (const int64_t m : {2, 3, 4, 5, 66, 71}) {
                if (m > most) continue;
                INFO(v.word << ' ' << keel_dtype_name(dtype) << " m " << m);
                CHECK(product(c, w, n, {x.begin(), x.begin() + m * k}, m) ==
                      std::vector<float>(alone.begin(), alone.begin() + m * n));
            }
            c->weight_destroy(c.get(), w);
        }
}
