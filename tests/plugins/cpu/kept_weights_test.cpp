// keel.weight_layout/1: what is kept of a weight comes back as it was, on this instruction set and on others.
#include "cpu_fixture.hpp"

#include <keel/ext/draft/weight_layout.h>

#include <fstream>
#include <random>
#include <unistd.h>

using namespace keel;
using namespace keel::test;

namespace {

keel_weight_layout layout_table() {
    static PluginLibrary library(KEEL_CPU_PLUGIN, SourceLocation{});
    keel_weight_layout table{};
    REQUIRE(keel_adopt(&table, sizeof table, library.extension(KEEL_EXT_WEIGHT_LAYOUT),
                       KEEL_PREFIX(keel_weight_layout, rows)) == KEEL_OK);
    return table;
}

// Parts of a weight, any bits but for the f16 scales, and what describes them.
struct Parts {
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<keel_weight_source> sources;
    std::vector<const keel_weight_source *> pointers;
    keel_weight_desc desc{};
    uint64_t row_bytes;

    Parts(keel_dtype dtype, std::vector<int64_t> rows, int64_t cols)
        : row_bytes(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols))) {
        std::mt19937 random(7);
        for (const int64_t n : rows) {
            auto &part = bytes.emplace_back(static_cast<uint64_t>(n) * row_bytes);
            for (uint8_t &byte : part)
                byte = static_cast<uint8_t>(random());
            const size_t block = keel_dtype_bytes(dtype);
            for (size_t at = 0; at < part.size(); at += block) { // scales of about 0.01
                const uint16_t half = static_cast<uint16_t>(0x2000 + random() % 0x400);
                if (dtype == KEEL_DTYPE_Q6_K) {
                    std::memcpy(&part[at + 208], &half, 2);
                } else {
                    std::memcpy(&part[at], &half, 2);
                    if (keel_dtype_weights_only(dtype) != 0) std::memcpy(&part[at + 2], &half, 2);
                }
            }
        }
        for (size_t i = 0; i < rows.size(); ++i) {
            keel_weight_source s = {KEEL_HEADER(keel_weight_source)};
            s.mapping = bytes[i].data();
            s.mapping_bytes = bytes[i].size();
            s.dtype = dtype;
            s.rows = rows[i];
            s.cols = cols;
            sources.push_back(s);
        }
        for (const keel_weight_source &s : sources)
            pointers.push_back(&s);
        desc.h = KEEL_HEADER(keel_weight_desc);
        desc.sources = pointers.data();
        desc.n_sources = static_cast<uint32_t>(pointers.size());
        desc.use = KEEL_USE_MATMUL;
        desc.max_m = 16;
    }
    // As a file describes it: without the rows.
    void forget() {
        for (keel_weight_source &s : sources)
            s.mapping = nullptr, s.mapping_bytes = 0;
    }
    std::vector<uint8_t> joined() const {
        std::vector<uint8_t> all;
        for (const auto &part : bytes)
            all.insert(all.end(), part.begin(), part.end());
        return all;
    }
    int64_t rows() const {
        int64_t n = 0;
        for (const keel_weight_source &s : sources)
            n += s.rows;
        return n;
    }
};

std::vector<float> product(Context &c, keel_weight *w, int64_t m, int64_t n, int64_t k) {
    std::vector<float> x(static_cast<size_t>(m * k));
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float &f : x)
        f = normal(random);
    const keel_tensor tx = c.tensor(KEEL_DTYPE_F32, m, k), tout = c.tensor(KEEL_DTYPE_F32, m, n);
    c.write(tx, x);
    keel_matmul_args a{};
    a.h = KEEL_HEADER(keel_matmul_args);
    a.x = &tx, a.weight = w, a.out = &tout;
    REQUIRE(c->matmul(c.get(), &a) == KEEL_OK);
    return c.read<float>(tout);
}

keel_laid_out laid_out(const std::vector<uint8_t> &file, const char *name, uint64_t offset, uint64_t bytes) {
    keel_laid_out laid = {KEEL_HEADER(keel_laid_out)};
    laid.name = name;
    laid.mapping = file.data();
    laid.mapping_bytes = file.size();
    laid.offset = offset;
    laid.bytes = bytes;
    return laid;
}

// The weight's layout in this context, and its bytes behind `offset` others.
std::vector<uint8_t> kept(Context &c, const keel_weight_layout &table, const Parts &parts,
                          const keel_weight *w, uint64_t offset, keel_weight_layout_info &info) {
    info = {KEEL_HEADER(keel_weight_layout_info)};
    REQUIRE(table.describe(c.get(), &parts.desc, &info) == KEEL_OK);
    std::vector<uint8_t> file(offset + info.bytes, 0xee);
    const uint64_t half = info.bytes / 2;
    REQUIRE(table.keep(c.get(), w, 0, file.data() + offset, half) == KEEL_OK);
    REQUIRE(table.keep(c.get(), w, half, file.data() + offset + half, info.bytes - half) == KEEL_OK);
    CHECK(table.keep(c.get(), w, half, file.data(), info.bytes) == KEEL_E_INVALID_ARG);
    return file;
}

constexpr keel_dtype kept_types[] = {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K,
                                     KEEL_DTYPE_Q6_K};

} // namespace

TEST_CASE("a weight that was kept is used in place, and gives the same bits") {
    const keel_weight_layout table = layout_table();
    for (const Variant &v : variants()) {
        if (v.backend != &cpu_backend()) continue;
        for (const keel_dtype dtype : kept_types) {
            INFO(v.isa << ' ' << keel_dtype_name(dtype));
            Context c(v, "fast");
            Parts parts(dtype, {16, 3, 21}, 512);
            keel_weight *w = nullptr, *again = nullptr;
            REQUIRE(c->weight_prepare(c.get(), &parts.desc, &w) == KEEL_OK);
            const std::vector<uint8_t> joined = parts.joined();
            parts.forget();
            keel_weight_layout_info info;
            const std::vector<uint8_t> file = kept(c, table, parts, w, 64, info);
            const keel_laid_out laid = laid_out(file, info.name, 64, info.bytes);
            REQUIRE(table.take(c.get(), &parts.desc, &laid, &again) == KEEL_OK);
            keel_weight_info facts = {KEEL_HEADER(keel_weight_info)}, before = facts;
            REQUIRE(c->weight_info(c.get(), again, &facts) == KEEL_OK);
            REQUIRE(c->weight_info(c.get(), w, &before) == KEEL_OK);
            CHECK(facts.source_needed == 1);
            CHECK(facts.bytes == before.bytes);
            CHECK(facts.rows == 40);
            for (const int64_t m : {1, 6})
                CHECK(product(c, w, m, 40, 512) == product(c, again, m, 40, 512));
            std::vector<uint8_t> rows(joined.size()), some(3 * parts.row_bytes);
            REQUIRE(table.rows(c.get(), &parts.desc, &laid, 0, 40, rows.data()) == KEEL_OK);
            CHECK(rows == joined);
            REQUIRE(table.rows(c.get(), &parts.desc, &laid, 15, 3, some.data()) == KEEL_OK);
            CHECK(std::equal(some.begin(), some.end(),
                             joined.begin() + static_cast<std::ptrdiff_t>(15 * parts.row_bytes)));
            CHECK(table.rows(c.get(), &parts.desc, &laid, 39, 2, rows.data()) == KEEL_E_INVALID_ARG);
            c->weight_destroy(c.get(), again);
            // At an offset that kernels cannot read from it is copied.
            const std::vector<uint8_t> odd = kept(c, table, parts, w, 1, info);
            const keel_laid_out off = laid_out(odd, info.name, 1, info.bytes);
            REQUIRE(table.take(c.get(), &parts.desc, &off, &again) == KEEL_OK);
            REQUIRE(c->weight_info(c.get(), again, &facts) == KEEL_OK);
            CHECK(facts.source_needed == 0);
            CHECK(product(c, w, 6, 40, 512) == product(c, again, 6, 40, 512));
            c->weight_destroy(c.get(), again);
            c->weight_destroy(c.get(), w);
        }
    }
}

TEST_CASE("a weight that another instruction set kept is put into this one's groups") {
    const keel_weight_layout table = layout_table();
    for (const Variant &from : variants())
        for (const Variant &to : variants()) {
            if (from.backend != &cpu_backend() || to.backend != &cpu_backend()) continue;
            for (const keel_dtype dtype : {KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q6_K}) {
                INFO(from.isa << " to " << to.isa << ' ' << keel_dtype_name(dtype));
                Context a(from, "fast"), b(to, "fast");
                const Parts parts(dtype, {21, 6}, 256);
                keel_weight *theirs = nullptr, *ours = nullptr, *taken = nullptr;
                REQUIRE(a->weight_prepare(a.get(), &parts.desc, &theirs) == KEEL_OK);
                REQUIRE(b->weight_prepare(b.get(), &parts.desc, &ours) == KEEL_OK);
                keel_weight_layout_info info;
                const std::vector<uint8_t> file = kept(a, table, parts, theirs, 0, info);
                const keel_laid_out laid = laid_out(file, info.name, 0, info.bytes);
                REQUIRE(table.take(b.get(), &parts.desc, &laid, &taken) == KEEL_OK);
                CHECK(product(b, ours, 3, 27, 256) == product(b, taken, 3, 27, 256));
                b->weight_destroy(b.get(), taken);
                b->weight_destroy(b.get(), ours);
                a->weight_destroy(a.get(), theirs);
            }
        }
}

TEST_CASE("kept weights of other layouts, sizes and places are refused") {
    const keel_weight_layout table = layout_table();
    Context c(variants().front(), "fast");
    Parts parts(KEEL_DTYPE_Q4_0, {20}, 64);
    keel_weight *w = nullptr, *taken = nullptr;
    REQUIRE(c->weight_prepare(c.get(), &parts.desc, &w) == KEEL_OK);
    keel_weight_layout_info info;
    const std::vector<uint8_t> file = kept(c, table, parts, w, 0, info);
    const auto take = [&](const char *name, uint64_t offset, uint64_t bytes) {
        const keel_laid_out laid = laid_out(file, name, offset, bytes);
        const keel_status status = table.take(c.get(), &parts.desc, &laid, &taken);
        CHECK(taken == nullptr);
        return status;
    };
    for (const char *name :
         {"", "cpu/interleaved-16/2", "cpu/interleaved-16", "cpu/interleaved-16/10", "cpu/interleaved-5/1",
          "cpu/interleaved-128/1", "cpu/interleaved-0/1", "opencl/tiles/1"})
        CHECK(take(name, 0, info.bytes) == KEEL_E_UNSUPPORTED);
    CHECK(take(info.name, 0, info.bytes - 1) == KEEL_E_INVALID_ARG);
    CHECK(take(info.name, 1, info.bytes) == KEEL_E_INVALID_ARG);
    CHECK(take(info.name, UINT64_MAX, info.bytes) == KEEL_E_INVALID_ARG);
    CHECK(take(info.name, 0, UINT64_MAX) == KEEL_E_INVALID_ARG);
    for (const int64_t rows : {int64_t{0}, int64_t{40}, int64_t{-1}, INT64_MAX}) {
        parts.sources[0].rows = rows;
        CHECK(take(info.name, 0, info.bytes) == KEEL_E_INVALID_ARG);
    }
    parts.sources[0].rows = 20;
    parts.sources[0].cols = INT64_MAX / 32 * 32;
    CHECK(take(info.name, 0, info.bytes) == KEEL_E_INVALID_ARG);
    parts.sources[0].cols = 64;
    parts.sources[0].dtype = KEEL_DTYPE_F16;
    CHECK(take(info.name, 0, info.bytes) == KEEL_E_UNSUPPORTED);
    parts.sources[0].dtype = KEEL_DTYPE_Q8_0;
    CHECK(take(info.name, 0, info.bytes) == KEEL_E_INVALID_ARG);
    c->weight_destroy(c.get(), w);
}

TEST_CASE("what is read in place has no layout to keep") {
    const keel_weight_layout table = layout_table();
    Context c(variants().front(), "fast");
    Parts parts(KEEL_DTYPE_F16, {20}, 64);
    keel_weight_layout_info info = {KEEL_HEADER(keel_weight_layout_info)};
    REQUIRE(table.describe(c.get(), &parts.desc, &info) == KEEL_OK);
    CHECK(info.name[0] == 0);
    CHECK(info.bytes == 0);
    keel_weight *w = nullptr;
    REQUIRE(c->weight_prepare(c.get(), &parts.desc, &w) == KEEL_OK);
    uint8_t byte = 0;
    CHECK(table.keep(c.get(), w, 0, &byte, 1) == KEEL_E_UNSUPPORTED);
    c->weight_destroy(c.get(), w);
}

namespace {

// Of this process, MiB; 0 where the system does not tell.
int64_t address_space() {
    std::ifstream file("/proc/self/statm");
    int64_t pages = 0;
    file >> pages;
    return pages * sysconf(_SC_PAGESIZE) >> 20;
}

} // namespace

TEST_CASE("weights share large pieces of memory, which go back with the last of them") {
    Context c(variants().front(), "fast");
    std::vector<keel_weight *> all;
    const Parts small(KEEL_DTYPE_Q8_0, {64}, 256), middle(KEEL_DTYPE_Q8_0, {512}, 1024),
        large(KEEL_DTYPE_Q4_0, {4096}, 4096);
    const auto make = [&](const Parts &parts) {
        REQUIRE(c->weight_prepare(c.get(), &parts.desc, &all.emplace_back()) == KEEL_OK);
    };
    for (int i = 0; i < 3; ++i) {
        make(middle);
        make(small);
        make(large);
    }
    const auto check = [&](size_t i, const Parts &parts) {
        keel_weight *alone = nullptr;
        REQUIRE(c->weight_prepare(c.get(), &parts.desc, &alone) == KEEL_OK);
        const int64_t n = parts.rows(), k = parts.sources[0].cols;
        CHECK(product(c, all[i], 1, n, k) == product(c, alone, 1, n, k));
        c->weight_destroy(c.get(), alone);
    };
    c->weight_destroy(c.get(), all[0]);
    c->weight_destroy(c.get(), all[5]);
    check(1, small);
    check(3, middle);
    check(8, large);
    for (const size_t i : {8, 1, 2, 3, 4, 7})
        c->weight_destroy(c.get(), all[i]);
    const int64_t with_one = address_space();
    c->weight_destroy(c.get(), all[6]);
    if (with_one != 0)
        CHECK(with_one - address_space() >= 256); // the piece, in which no other weight is left
}
