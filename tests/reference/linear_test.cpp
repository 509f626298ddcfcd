#include "reference/bench.hpp"

using namespace keel::test;

namespace {

Values naive_matmul(const Values &x, const Values &w, size_t m, size_t n, size_t k) {
    Values out(m * n, 0.0);
    for (size_t i = 0; i < m; ++i)
        for (size_t j = 0; j < n; ++j)
            for (size_t e = 0; e < k; ++e) out[i * n + j] += x[i * k + e] * w[j * k + e];
    return out;
}

keel_weight *prepare(Bench &bench, const std::vector<std::vector<float>> &sources, int64_t cols,
                     keel_join join) {
    std::vector<keel_weight_source> list;
    std::vector<const keel_weight_source *> pointers;
    for (const auto &values : sources) {
        keel_weight_source s = {};
        s.h = KEEL_HEADER(keel_weight_source);
        s.mapping = values.data();
        s.mapping_bytes = values.size() * 4;
        s.dtype = KEEL_DTYPE_F32;
        s.cols = cols;
        s.rows = static_cast<int64_t>(values.size()) / cols;
        list.push_back(s);
    }
    for (const auto &s : list) pointers.push_back(&s);
    keel_weight_desc desc = {};
    desc.h = KEEL_HEADER(keel_weight_desc);
    desc.sources = pointers.data();
    desc.n_sources = static_cast<uint32_t>(pointers.size());
    desc.join = join;
    desc.use = KEEL_USE_MATMUL;
    keel_weight *weight = nullptr;
    REQUIRE(bench.backend().weight_prepare(bench.ctx(), &desc, &weight) == KEEL_OK);
    return weight;
}

} // namespace

TEST_CASE("matmul multiplies by the transposed weight") {
    Bench bench;
    const auto *x = bench.floats({2, 3}, {1, 2, 3, -1, 0, 0.5});
    const auto *w = bench.floats({2, 3}, {1, 0, 2, 4, -1, 8}); // two outputs
    const auto *out = bench.blank({2, 2});
    auto a = args_of<keel_matmul_args>();
    a.x = x;
    a.w = w;
    a.out = out;
    REQUIRE(bench.backend().matmul(bench.ctx(), &a) == KEEL_OK);
    CHECK(bench.read(out) == Values{7, 26, 0, 0});
}

TEST_CASE("matmul agrees with float64 for each weight type, with bias and accumulation") {
    Bench bench;
    const size_t m = 5, n = 7, k = 96;
    for (const keel_dtype dtype :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        for (const uint64_t features : {0, 1, 2, 3}) {
            const Values x = random_values(m * k, 1), b = random_values(n, 3),
                         old = random_values(m * n, 4);
            const auto *w = bench.floats({n, k}, random_values(n * k, 2), dtype);
            // uses the values of the stored weight
            Values want = naive_matmul(x, bench.read(w), m, n, k);
            for (size_t i = 0; i < want.size(); ++i) {
                if ((features & KEEL_MATMUL_BIAS) != 0) want[i] += b[i % n];
                if ((features & KEEL_MATMUL_ACCUMULATE) != 0) want[i] += old[i];
            }
            auto a = args_of<keel_matmul_args>(features);
            a.x = bench.floats({m, k}, x);
            a.w = w;
            a.bias = (features & KEEL_MATMUL_BIAS) != 0 ? bench.floats({n}, b) : nullptr;
            a.out = (features & KEEL_MATMUL_ACCUMULATE) != 0 ? bench.floats({m, n}, old)
                                                             : bench.blank({m, n});
            REQUIRE(bench.backend().matmul(bench.ctx(), &a) == KEEL_OK);
            require_close(bench.read(a.out), want);
        }
    }
}

TEST_CASE("a weight of several sources is joined one after the other or row by row") {
    Bench bench;
    const std::vector<std::vector<float>> sources = {
        {1, 2, 3, 4}, {10, 20, 30, 40}}; // two rows of two columns each
    const auto *x = bench.floats({1, 2}, {1, 100});
    for (const keel_join join : {KEEL_JOIN_ROWS, KEEL_JOIN_INTERLEAVE}) {
        keel_weight *weight = prepare(bench, sources, 2, join);
        keel_weight_info info = {};
        info.h = KEEL_HEADER(keel_weight_info);
        REQUIRE(bench.backend().weight_info(bench.ctx(), weight, &info) == KEEL_OK);
        CHECK(info.rows == 4);
        CHECK(info.source_needed == 0);
        auto a = args_of<keel_matmul_args>();
        a.x = x;
        a.weight = weight;
        a.out = bench.blank({1, 4});
        REQUIRE(bench.backend().matmul(bench.ctx(), &a) == KEEL_OK);
        CHECK(bench.read(a.out) == (join == KEEL_JOIN_ROWS ? Values{201, 403, 2010, 4030}
                                                           : Values{201, 2010, 403, 4030}));
        bench.backend().weight_destroy(bench.ctx(), weight);
    }
    keel_weight *single = prepare(bench, {sources[0]}, 2, KEEL_JOIN_ROWS);
    keel_weight_info info = {};
    info.h = KEEL_HEADER(keel_weight_info);
    REQUIRE(bench.backend().weight_info(bench.ctx(), single, &info) == KEEL_OK);
    CHECK(info.source_needed == 1);
    bench.backend().weight_destroy(bench.ctx(), single);
}

TEST_CASE("a weight source that exceeds its mapping is refused") {
    Bench bench;
    const std::vector<float> values(8);
    for (const auto &[offset, rows, cols] : {std::array<int64_t, 3>{4, 2, 4},
                                             {0, 3, 4},
                                             {0, INT64_MAX, 1},
                                             {0, INT64_MAX / 2, INT64_MAX / 4},
                                             {0, -1, 4}}) {
        keel_weight_source s = {};
        s.h = KEEL_HEADER(keel_weight_source);
        s.mapping = values.data();
        s.mapping_bytes = 32;
        s.offset = static_cast<uint64_t>(offset);
        s.dtype = KEEL_DTYPE_F32;
        s.rows = rows;
        s.cols = cols;
        const keel_weight_source *pointer = &s;
        keel_weight_desc desc = {};
        desc.h = KEEL_HEADER(keel_weight_desc);
        desc.sources = &pointer;
        desc.n_sources = 1;
        keel_weight *weight = nullptr;
        CHECK(bench.backend().weight_prepare(bench.ctx(), &desc, &weight) == KEEL_E_INVALID_ARG);
        CHECK(weight == nullptr);
    }
}

TEST_CASE("embed copies scaled rows by id, and gives NaN for an id out of range") {
    Bench bench;
    auto a = args_of<keel_embed_args>();
    a.ids = bench.ints({4}, {2, 0, 3, -1});
    a.w = bench.floats({3, 2}, {1, 2, 3, 4, 5, 6}, KEEL_DTYPE_F16);
    a.out = bench.blank({4, 2});
    a.scale = 0.5F;
    REQUIRE(bench.backend().embed(bench.ctx(), &a) == KEEL_OK);
    const double nan = std::nan("");
    require_close(bench.read(a.out), {2.5, 3, 0.5, 1, nan, nan, nan, nan}, 0);
}

TEST_CASE("blocks of q8_0 and q4_0 have GGML's layout") {
    Bench bench;
    for (const keel_dtype dtype : {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        const auto *w = bench.blank({1, 32}, dtype);
        std::vector<uint8_t> block(keel_dtype_bytes(dtype));
        block[1] = 0x38; // 0.5 in binary16, little-endian
        for (uint8_t i = 0; i < block.size() - 2; ++i)
            block[2 + i] = dtype == KEEL_DTYPE_Q8_0 ? static_cast<uint8_t>(i - 16)
                                                    : static_cast<uint8_t>(i | (15 - i) << 4);
        bench.backend().buffer_write(bench.ctx(), w->buffer, w->offset, block.data(), block.size());
        auto a = args_of<keel_embed_args>();
        a.ids = bench.ints({1}, {0});
        a.w = w;
        a.out = bench.blank({1, 32});
        a.scale = 1;
        REQUIRE(bench.backend().embed(bench.ctx(), &a) == KEEL_OK);
        Values want;
        for (int i = 0; i < 32; ++i) {
            if (dtype == KEEL_DTYPE_Q8_0)
                want.push_back(0.5 * (i - 16));
            else
                want.push_back(0.5 * ((i < 16 ? i : 15 - (i - 16)) - 8));
        }
        CHECK(bench.read(a.out) == want);
    }
}
