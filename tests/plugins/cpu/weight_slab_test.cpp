// Tests of the large slabs of memory that weights share.
#include "cpu_fixture.hpp"

#include <fstream>
#include <random>
#include <unistd.h>

using namespace keel;
using namespace keel::test;

namespace {

// The rows of a quantized weight, and their description. The bits are random except for the f16
// scales.
struct Rows {
    int64_t n, k;
    std::vector<uint8_t> bytes;
    keel_weight_source source = {KEEL_HEADER(keel_weight_source)};
    const keel_weight_source *sources = &source;
    keel_weight_desc desc = {KEEL_HEADER(keel_weight_desc)};

    Rows(keel_dtype dtype, int64_t rows, int64_t cols)
        : n(rows), k(cols), bytes(static_cast<uint64_t>(rows) *
                                  keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols))) {
        std::mt19937 random(7);
        for (uint8_t &byte : bytes) byte = static_cast<uint8_t>(random());
        for (size_t at = 0; at < bytes.size(); at += keel_dtype_bytes(dtype)) {
            const uint16_t half = static_cast<uint16_t>(0x2000 + random() % 0x400); // about 0.01
            std::memcpy(&bytes[at], &half, 2);
        }
        source.mapping = bytes.data();
        source.mapping_bytes = bytes.size();
        source.dtype = dtype;
        source.rows = rows;
        source.cols = cols;
        desc.sources = &sources;
        desc.n_sources = 1;
        desc.use = KEEL_USE_MATMUL;
        desc.max_m = 16;
    }
    Rows(const Rows &) = delete;
    Rows &operator=(const Rows &) = delete;
};

std::vector<float> product(Context &c, keel_weight *w, int64_t n, int64_t k) {
    std::vector<float> x(static_cast<size_t>(k));
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float &f : x) f = normal(random);
    const keel_tensor tx = c.tensor(KEEL_DTYPE_F32, 1, k), tout = c.tensor(KEEL_DTYPE_F32, 1, n);
    c.write(tx, x);
    keel_matmul_args a{};
    a.h = KEEL_HEADER(keel_matmul_args);
    a.x = &tx, a.weight = w, a.out = &tout;
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    return c.read<float>(tout);
}

// Returns the address space of this process in MiB, or 0 if the system does not report it.
int64_t address_space() {
    std::ifstream file("/proc/self/statm");
    int64_t pages = 0;
    file >> pages;
    return pages * sysconf(_SC_PAGESIZE) >> 20;
}

} // namespace

TEST_CASE("weights share large slabs of memory, which are freed with the last weight") {
    Context c(variants().front(), "fast");
    std::vector<keel_weight *> all;
    const Rows small(KEEL_DTYPE_Q8_0, 64, 256), middle(KEEL_DTYPE_Q8_0, 512, 1024),
        large(KEEL_DTYPE_Q4_0, 4096, 4096);
    const auto make = [&](const Rows &rows) {
        REQUIRE(c->weight_prepare(c.get(), &rows.desc, &all.emplace_back()) == KEEL_OK);
    };
    for (int i = 0; i < 3; ++i) {
        make(middle);
        make(small);
        make(large);
    }
    const auto check = [&](size_t i, const Rows &rows) {
        keel_weight *alone = nullptr;
        REQUIRE(c->weight_prepare(c.get(), &rows.desc, &alone) == KEEL_OK);
        CHECK(product(c, all[i], rows.n, rows.k) == product(c, alone, rows.n, rows.k));
        c->weight_destroy(c.get(), alone);
    };
    c->weight_destroy(c.get(), all[0]);
    c->weight_destroy(c.get(), all[5]);
    check(1, small);
    check(3, middle);
    check(8, large);
    for (const size_t i : {8, 1, 2, 3, 4, 7}) c->weight_destroy(c.get(), all[i]);
    const int64_t with_one = address_space();
    c->weight_destroy(c.get(), all[6]);
    if (with_one != 0)
        CHECK(with_one - address_space() >= 256); // the slab is freed when no weight is left in it
}
