#include "cpu_fixture.hpp"
#include "numbers/convert.hpp"

#include <cmath>
#include <random>
#include <tuple>

using namespace keel;
using namespace keel::test;

namespace {

// A weight as it is in a file, and its values.
struct Source {
    std::vector<uint8_t> bytes;
    std::vector<double> values; // [rows, cols]
};

uint16_t half_of(int i) {
    return static_cast<uint16_t>(0x2400 + i % 0x800);
} // f16 numbers from about 0.016 to 0.06

double half_value(uint16_t h) {
    return std::ldexp(1024.0 + (h & 0x3ff), (h >> 10 & 31) - 25) * (h & 0x8000 ? -1 : 1);
}

template <class T> void append(std::vector<uint8_t> &to, T value) {
    const auto *p = reinterpret_cast<const uint8_t *>(&value);
    to.insert(to.end(), p, p + sizeof value);
}

// Appends a block of a K type. The bits are random except for the f16 scales.
void append_k_block(Source &s, keel_dtype dtype, std::mt19937 &random) {
    std::vector<uint8_t> block(keel_dtype_bytes(dtype));
    for (uint8_t &byte : block) byte = static_cast<uint8_t>(random());
    for (const size_t at :
         dtype == KEEL_DTYPE_Q6_K ? std::vector<size_t>{208} : std::vector<size_t>{0, 2}) {
        const uint16_t half = half_of(static_cast<int>(random() % 2048));
        std::memcpy(block.data() + at, &half, 2);
    }
    float values[256];
    convert_to_f32(dtype, block.data(), values, 256);
    s.bytes.insert(s.bytes.end(), block.begin(), block.end());
    s.values.insert(s.values.end(), values, values + 256);
}

Source make_source(keel_dtype dtype, int64_t rows, int64_t cols, uint32_t seed) {
    Source s;
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    for (int64_t b = 0; b < rows * cols / (keel_dtype_block(dtype)); ++b) {
        if (dtype == KEEL_DTYPE_F32) {
            const float f = static_cast<float>(below(2001) - 1000) / 512.0f;
            append(s.bytes, f);
            s.values.push_back(static_cast<double>(f));
        } else if (dtype == KEEL_DTYPE_F16) {
            const uint16_t h = static_cast<uint16_t>(half_of(below(2048)) | (below(2) << 15));
            append(s.bytes, h);
            s.values.push_back(half_value(h));
        } else if (dtype == KEEL_DTYPE_BF16) {
            const uint16_t h = static_cast<uint16_t>(0x3f00 + below(128) + (below(2) << 15));
            const uint32_t bits = static_cast<uint32_t>(h) << 16;
            float f;
            std::memcpy(&f, &bits, 4);
            append(s.bytes, h);
            s.values.push_back(static_cast<double>(f));
        } else if (keel_dtype_weights_only(dtype) != 0) {
            append_k_block(s, dtype, random);
        } else {
            const uint16_t d = half_of(below(2048));
            append(s.bytes, d);
            std::vector<int> q(32);
            for (int &v : q) v = dtype == KEEL_DTYPE_Q8_0 ? below(256) - 128 : below(16) - 8;
            if (dtype == KEEL_DTYPE_Q8_0)
                for (int v : q) s.bytes.push_back(static_cast<uint8_t>(v));
            else
                for (int j = 0; j < 16; ++j)
                    s.bytes.push_back(
                        static_cast<uint8_t>((q[static_cast<size_t>(j)] + 8) |
                                             (q[static_cast<size_t>(j) + 16] + 8) << 4));
            for (int v : q) s.values.push_back(half_value(d) * v);
        }
    }
    return s;
}

// Prepares a weight of several sources. As in a model file, the sources are in one mapping and not
// aligned.
keel_weight *prepare(Context &c, const std::vector<Source> &sources, keel_dtype dtype, int64_t rows,
                     int64_t cols, keel_join join, uint32_t use, std::vector<uint8_t> &file) {
    file.assign(3, 0);
    std::vector<keel_weight_source> list(sources.size());
    for (size_t i = 0; i < sources.size(); ++i) {
        list[i] = {};
        list[i].h = KEEL_HEADER(keel_weight_source);
        list[i].offset = file.size();
        list[i].dtype = dtype;
        list[i].rows = rows;
        list[i].cols = cols;
        file.insert(file.end(), sources[i].bytes.begin(), sources[i].bytes.end());
    }
    std::vector<const keel_weight_source *> pointers;
    for (keel_weight_source &s : list)
        s.mapping = file.data(), s.mapping_bytes = file.size(), pointers.push_back(&s);
    keel_weight_desc desc{};
    desc.h = KEEL_HEADER(keel_weight_desc);
    desc.sources = pointers.data();
    desc.n_sources = static_cast<uint32_t>(sources.size());
    desc.join = join;
    desc.use = use;
    desc.max_m = 64;
    keel_weight *w = nullptr;
    REQUIRE(c->weight_prepare(c.get(), &desc, &w) == KEEL_OK);
    return w;
}

// Returns row r of the joined weight.
const double *joined_row(const std::vector<Source> &s, int64_t rows, int64_t cols, keel_join join,
                         int64_t r) {
    const auto n = static_cast<int64_t>(s.size());
    const int64_t source = join == KEEL_JOIN_INTERLEAVE ? r % n : r / rows,
                  row = join == KEEL_JOIN_INTERLEAVE ? r / n : r % rows;
    return s[static_cast<size_t>(source)].values.data() + row * cols;
}

struct Case {
    int64_t rows, cols; // of each source
    int sources;
    keel_join join;
};

struct Product {
    double sum = 0, magnitude = 0; // magnitude: sum of the terms' magnitudes
    void add(double term) { sum += term, magnitude += std::fabs(term); }
};

// Returns x [m, k] times the joined weight: [m, rows of all sources].
std::vector<Product> products_of(const std::vector<float> &x, int64_t m, int64_t k,
                                 const std::vector<Source> &sources, const Case &shape) {
    std::vector<Product> products;
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < shape.rows * shape.sources; ++j) {
            const double *row = joined_row(sources, shape.rows, k, shape.join, j);
            Product p;
            for (int64_t l = 0; l < k; ++l)
                p.add(static_cast<double>(x[static_cast<size_t>(i * k + l)]) * row[l]);
            products.push_back(p);
        }
    return products;
}

void check_weight(const Variant &v, const std::string &compute, keel_dtype dtype, const Case &shape,
                  const std::string &copy = "auto") {
    Context c(v, compute, 2, "auto", copy);
    std::vector<Source> sources;
    for (int i = 0; i < shape.sources; ++i)
        sources.push_back(make_source(dtype, shape.rows, shape.cols, static_cast<uint32_t>(i)));
    std::vector<uint8_t> file;
    keel_weight *w = prepare(c, sources, dtype, shape.rows, shape.cols, shape.join,
                             KEEL_USE_MATMUL | KEEL_USE_EMBED, file);
    keel_weight_info facts{};
    facts.h = KEEL_HEADER(keel_weight_info);
    REQUIRE(c->weight_info(c.get(), w, &facts) == KEEL_OK);
    const int64_t n = shape.rows * shape.sources, k = shape.cols;
    CHECK(facts.rows == n);
    CHECK(facts.cols == k);
    CHECK(facts.dtype == dtype);
    if (facts.source_needed == 0)
        // the core unmaps the file after weight_prepare
        std::fill(file.begin(), file.end(), uint8_t{0xff});

    const bool quantized = keel_dtype_block(dtype) > 1;
    const double bound = compute == "exact" ? 2e-6 : quantized ? 1.5e-2 : 4e-3;
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    for (int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 13, 25}) {
        std::vector<float> x(static_cast<size_t>(m * k)), bias(static_cast<size_t>(n)),
            old(static_cast<size_t>(m * n));
        for (auto *values : {&x, &bias, &old})
            for (float &f : *values) f = normal(random);
        const std::vector<Product> products = products_of(x, m, k, sources, shape);
        const keel_tensor tx = c.tensor(KEEL_DTYPE_F32, m, k, 3),
                          tout = c.tensor(KEEL_DTYPE_F32, m, n, 5);
        keel_tensor tbias = c.tensor(KEEL_DTYPE_F32, 1, n);
        c.write(tbias, bias);
        tbias.rank = 1, tbias.shape[0] = n;
        for (uint64_t features : {0u, KEEL_MATMUL_BIAS, KEEL_MATMUL_ACCUMULATE,
                                  KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE}) {
            if (m != 0) c.write(tx, x), c.write(tout, old);
            keel_matmul_args a{};
            a.h = KEEL_HEADER(keel_matmul_args);
            a.features = features;
            a.x = &tx, a.weight = w, a.out = &tout;
            a.bias = (features & KEEL_MATMUL_BIAS) != 0 ? &tbias : nullptr;
            REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
            if (m == 0) continue;
            const std::vector<float> y = c.read<float>(tout);
            double worst = 0;
            for (size_t i = 0; i < y.size(); ++i) {
                Product p = products[i];
                if ((features & KEEL_MATMUL_BIAS) != 0)
                    p.add(static_cast<double>(bias[i % static_cast<size_t>(n)]));
                if ((features & KEEL_MATMUL_ACCUMULATE) != 0) p.add(static_cast<double>(old[i]));
                const double off = std::fabs(static_cast<double>(y[i]) - p.sum) / (1 + p.magnitude);
                if (!(off <= worst)) worst = off;
            }
            INFO(v.word << ' ' << compute << ' ' << keel_dtype_name(dtype) << " m " << m << " n "
                        << n << " k " << k << " features " << features);
            REQUIRE(worst <= bound);
        }
    }

    const keel_tensor out = c.tensor(KEEL_DTYPE_F32, n + 2, k);
    keel_tensor ids = c.tensor(KEEL_DTYPE_I32, 1, n + 2);
    std::vector<int32_t> wanted;
    for (int64_t i = n; i >= -1; --i)
        // the first and the last index are outside the rows
        wanted.push_back(static_cast<int32_t>(i));
    c.write(ids, wanted);
    ids.rank = 1, ids.shape[0] = n + 2;
    keel_embed_args e{};
    e.h = KEEL_HEADER(keel_embed_args);
    e.ids = &ids, e.weight = w, e.out = &out;
    e.scale = 1;
    REQUIRE(c->embed(c.get(), &e) == KEEL_OK);
    const std::vector<float> rows = c.read<float>(out);
    bool exact = true;
    for (int64_t i = 0; i < n + 2; ++i)
        for (int64_t l = 0; l < k; ++l) {
            const float y = rows[static_cast<size_t>(i * k + l)];
            const bool inside =
                wanted[static_cast<size_t>(i)] >= 0 && wanted[static_cast<size_t>(i)] < n;
            if (!inside) {
                exact &= std::isnan(y);
                continue;
            }
            const double value =
                joined_row(sources, shape.rows, k, shape.join, wanted[static_cast<size_t>(i)])[l];
            // A value of the K types is a sum of two products. Some instruction sets round this sum
            // only once.
            exact &=
                keel_dtype_weights_only(dtype) == 0
                    ? y == static_cast<float>(value)
                    : std::fabs(static_cast<double>(y) - value) <= 1e-6 * (1 + std::fabs(value));
        }
    CHECK(exact);
    c->weight_destroy(c.get(), w);
}

} // namespace

TEST_CASE("a prepared weight multiplies and embeds like its sources, in any layout") {
    for (const Variant &v : variants())
        for (const char *compute : {"exact", "fast"})
            for (keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16,
                                     KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
                const int64_t block = keel_dtype_block(dtype), odd = block == 1 ? 5 : 0;
                check_weight(v, compute, dtype, {1, 32 + odd, 1, KEEL_JOIN_ROWS});
                check_weight(v, compute, dtype, {7, 64 + odd, 1, KEEL_JOIN_ROWS});
                check_weight(v, compute, dtype, {11, 288 + odd, 3, KEEL_JOIN_ROWS});
                check_weight(v, compute, dtype, {17, 320, 2, KEEL_JOIN_INTERLEAVE});
            }
}

TEST_CASE("weights of K types multiply and embed like their decoded blocks, in any layout") {
    for (const Variant &v : variants())
        for (const char *compute : {"exact", "fast"})
            for (keel_dtype dtype : {KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K}) {
                check_weight(v, compute, dtype, {1, 256, 1, KEEL_JOIN_ROWS});
                check_weight(v, compute, dtype, {11, 768, 3, KEEL_JOIN_ROWS});
                check_weight(v, compute, dtype, {17, 512, 2, KEEL_JOIN_INTERLEAVE});
            }
}

TEST_CASE("weights of K types take no more memory than their blocks in a file") {
    for (const Variant &v : variants())
        for (keel_dtype dtype : {KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K}) {
            Context c(v, "fast");
            std::vector<uint8_t> file;
            const Source source = make_source(dtype, 32, 512, 1);
            keel_weight *w =
                prepare(c, {source}, dtype, 32, 512, KEEL_JOIN_ROWS, KEEL_USE_MATMUL, file);
            keel_weight_info facts{};
            facts.h = KEEL_HEADER(keel_weight_info);
            REQUIRE(c->weight_info(c.get(), w, &facts) == KEEL_OK);
            CHECK(facts.source_needed == 0);
            CHECK(facts.bytes == source.bytes.size());
            CHECK(std::string(facts.layout).find(keel_dtype_name(dtype)) == 0);
            c->weight_destroy(c.get(), w);
        }
}

TEST_CASE("copied weights multiply and embed like their sources") {
    for (const Variant &v : variants())
        for (keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_BF16})
            for (keel_join join : {KEEL_JOIN_ROWS, KEEL_JOIN_INTERLEAVE})
                check_weight(v, "fast", dtype, {33, 96, 2, join}, "on");
}

TEST_CASE("16-bit weights of products are copied if the parameter says so, and freed") {
    Context c(variants().front(), "fast", 2, "auto", "on");
    for (const auto &[dtype, use, copied] : {std::tuple{KEEL_DTYPE_F16, KEEL_USE_MATMUL, true},
                                             std::tuple{KEEL_DTYPE_BF16, KEEL_USE_MATMUL, true},
                                             std::tuple{KEEL_DTYPE_F16, KEEL_USE_EMBED, false},
                                             std::tuple{KEEL_DTYPE_F32, KEEL_USE_MATMUL, false}}) {
        std::vector<uint8_t> file;
        keel_weight *w = prepare(c, {make_source(dtype, 20, 64, 1)}, dtype, 20, 64, KEEL_JOIN_ROWS,
                                 static_cast<uint32_t>(use), file);
        keel_weight_info facts{};
        facts.h = KEEL_HEADER(keel_weight_info);
        REQUIRE(c->weight_info(c.get(), w, &facts) == KEEL_OK);
        CHECK(facts.source_needed == (copied ? 0u : 1u));
        CHECK((std::string(facts.layout).find("copied") != std::string::npos) == copied);
        keel_mem_info info{};
        info.h = KEEL_HEADER(keel_mem_info);
        REQUIRE(c->mem_info(c.get(), &info) == KEEL_OK);
        CHECK((info.ours >= facts.bytes) == copied);
        c->weight_destroy(c.get(), w);
        REQUIRE(c->mem_info(c.get(), &info) == KEEL_OK);
        CHECK(info.ours == 0);
    }
}

TEST_CASE("quantized weights are repacked, and others are read in place") {
    for (const Variant &v : variants()) {
        Context c(v, "fast");
        for (keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_Q4_0}) {
            std::vector<uint8_t> file;
            keel_weight *w = prepare(c, {make_source(dtype, 20, 64, 1)}, dtype, 20, 64,
                                     KEEL_JOIN_ROWS, KEEL_USE_MATMUL, file);
            keel_weight_info facts{};
            facts.h = KEEL_HEADER(keel_weight_info);
            REQUIRE(c->weight_info(c.get(), w, &facts) == KEEL_OK);
            CHECK(facts.source_needed == (dtype == KEEL_DTYPE_F16 ? 1u : 0u));
            keel_mem_info info{};
            info.h = KEEL_HEADER(keel_mem_info);
            REQUIRE(c->mem_info(c.get(), &info) == KEEL_OK);
            CHECK((info.ours >= facts.bytes) == (dtype == KEEL_DTYPE_Q4_0));
            c->weight_destroy(c.get(), w);
            REQUIRE(c->mem_info(c.get(), &info) == KEEL_OK);
            CHECK(info.ours == 0);
        }
    }
}

TEST_CASE("a source that exceeds its mapping is refused") {
    Context c(variants().front(), "fast");
    std::vector<uint8_t> file(100);
    keel_weight_source s{};
    s.h = KEEL_HEADER(keel_weight_source);
    s.mapping = file.data(), s.mapping_bytes = file.size();
    s.dtype = KEEL_DTYPE_F32, s.rows = 5, s.cols = 5;
    const keel_weight_source *list[] = {&s};
    keel_weight_desc desc{};
    desc.h = KEEL_HEADER(keel_weight_desc);
    desc.sources = list, desc.n_sources = 1, desc.use = KEEL_USE_MATMUL;
    keel_weight *w = nullptr;
    CHECK(c->weight_prepare(c.get(), &desc, &w) == KEEL_OK);
    c->weight_destroy(c.get(), w);
    s.offset = 4;
    CHECK(c->weight_prepare(c.get(), &desc, &w) == KEEL_E_INVALID_ARG);
    CHECK(w == nullptr);
    s.offset = 0, s.rows = INT64_MAX / 4;
    CHECK(c->weight_prepare(c.get(), &desc, &w) == KEEL_E_INVALID_ARG);
    s.rows = 5, s.dtype = KEEL_DTYPE_F8E4M3;
    CHECK(c->weight_prepare(c.get(), &desc, &w) == KEEL_E_UNSUPPORTED);
}

TEST_CASE("a NaN in the activations affects only its row of the product") {
    for (const Variant &v : variants()) {
        Context c(v, "fast");
        std::vector<uint8_t> file;
        const keel_dtype dtype = GENERATE(KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q6_K);
        const int64_t cols = dtype == KEEL_DTYPE_Q4_0 ? 64 : 256;
        keel_weight *w = prepare(c, {make_source(dtype, 9, cols, 1)}, dtype, 9, cols,
                                 KEEL_JOIN_ROWS, KEEL_USE_MATMUL, file);
        for (float bad : {NAN, INFINITY, -INFINITY}) {
            std::vector<float> x(static_cast<size_t>(5 * cols), 0.5f);
            x[static_cast<size_t>(cols * 2 + 33)] = bad;
            const keel_tensor tx = c.tensor(KEEL_DTYPE_F32, 5, cols),
                              out = c.tensor(KEEL_DTYPE_F32, 5, 9);
            c.write(tx, x);
            keel_matmul_args a{};
            a.h = KEEL_HEADER(keel_matmul_args);
            a.x = &tx, a.weight = w, a.out = &out;
            REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
            const std::vector<float> y = c.read<float>(out);
            for (size_t i = 0; i < y.size(); ++i) CHECK(std::isfinite(y[i]) == (i / 9 != 2));
        }
        c->weight_destroy(c.get(), w);
    }
}
