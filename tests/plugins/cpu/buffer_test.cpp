#include "cpu_fixture.hpp"
#include "support/skip.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

using namespace keel;
using namespace keel::test;

namespace {

keel_buffer *create(Context &c, uint64_t size, keel_buffer_kind kind, void *host = nullptr) {
    keel_buffer_desc desc{};
    desc.h = KEEL_HEADER(keel_buffer_desc);
    desc.size = size;
    desc.kind = kind;
    desc.host = host;
    keel_buffer *b = nullptr;
    REQUIRE(c->buffer_create(c.get(), &desc, &b) == KEEL_OK);
    return b;
}

uint64_t ours(Context &c) {
    keel_mem_info info{};
    info.h = KEEL_HEADER(keel_mem_info);
    REQUIRE(c->mem_info(c.get(), &info) == KEEL_OK);
    CHECK(info.total >= info.free);
    return info.ours;
}

} // namespace

TEST_CASE("buffers are aligned, counted and given back") {
    Context c(variants().front(), "fast");
    const uint64_t before = ours(c);
    for (uint64_t size : {1ull, 63ull, 4096ull, 3ull << 20}) {
        keel_buffer *b = create(c, size, KEEL_BUFFER_HOST_VISIBLE);
        void *p = nullptr;
        REQUIRE(c->buffer_map(c.get(), b, &p) == KEEL_OK);
        CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
        std::memset(p, 7, size);
        CHECK(ours(c) == before + size);
        c->buffer_destroy(c.get(), b);
        CHECK(ours(c) == before);
    }
}

TEST_CASE("a range outside a buffer is refused") {
    Context c(variants().front(), "fast");
    keel_buffer *b = create(c, 16, KEEL_BUFFER_DEVICE);
    char bytes[32] = {};
    CHECK(c->buffer_write(c.get(), b, 8, bytes, 9) == KEEL_E_INVALID_ARG);
    CHECK(c->buffer_read(c.get(), b, 17, bytes, 0) == KEEL_E_INVALID_ARG);
    CHECK(c->buffer_read(c.get(), b, UINT64_MAX, bytes, 2) == KEEL_E_INVALID_ARG);
    CHECK(c->buffer_write(c.get(), b, 16, bytes, 0) == KEEL_OK);
    c->buffer_destroy(c.get(), b);
}

TEST_CASE("imported memory is used without a copy") {
    Context c(variants().front(), "fast");
    alignas(64) char memory[128] = "before";
    keel_buffer *b = create(c, sizeof memory, KEEL_BUFFER_IMPORT, memory);
    REQUIRE(c->buffer_write(c.get(), b, 0, "after", 6) == KEEL_OK);
    CHECK(std::string(memory) == "after");
    c->buffer_destroy(c.get(), b);
    CHECK(std::string(memory) == "after");
}

TEST_CASE("reserved address space has memory only where it was committed") {
    Context c(variants().front(), "fast");
    const uint64_t before = ours(c), size = 64ull << 30,
                   mib = 1u << 20; // more than the memory of the machine
    keel_buffer *b = create(c, size, KEEL_BUFFER_RESERVE);
    CHECK(ours(c) == before);
    void *p = nullptr;
    REQUIRE(c->buffer_map(c.get(), b, &p) == KEEL_OK);
    REQUIRE(c->buffer_commit(c.get(), b, size - mib, mib, 1) == KEEL_OK);
    CHECK(ours(c) == before + mib);
    char *last = static_cast<char *>(p) + size - mib;
    std::memset(last, 5, mib);
    // Committing a range twice has no further effect. A part of a page is not released.
    REQUIRE(c->buffer_commit(c.get(), b, size - mib, mib, 1) == KEEL_OK);
    CHECK(ours(c) == before + mib);
    REQUIRE(c->buffer_commit(c.get(), b, size - mib + 100, 3000, 0) == KEEL_OK);
    CHECK(ours(c) == before + mib);
    CHECK(last[100] == 5);
    REQUIRE(c->buffer_commit(c.get(), b, size - mib, mib, 0) == KEEL_OK);
    CHECK(ours(c) == before);
    CHECK(last[100] == 0); // the page is new, so it is zero
    c->buffer_destroy(c.get(), b);
    CHECK(ours(c) == before);
}

// Returns the VmFlags of the mapping that contains p, for example "rd wr ... nh".
static std::string mapping_flags(const void *p) {
    std::ifstream smaps("/proc/self/smaps");
    const auto address = reinterpret_cast<uintptr_t>(p);
    bool inside = false;
    for (std::string line; std::getline(smaps, line);) {
        unsigned long long begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
            inside = begin <= address && address < end;
        else if (inside && line.starts_with("VmFlags:"))
            return line + ' ';
    }
    return {};
}

TEST_CASE("a reservation takes no huge pages, which would hold more memory than its blocks") {
    if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage"))
        skip("the system has no transparent huge pages");
    Context c(variants().front(), "fast");
    keel_buffer *b = create(c, 64ull << 20, KEEL_BUFFER_RESERVE);
    void *p = nullptr;
    REQUIRE(c->buffer_map(c.get(), b, &p) == KEEL_OK);
    CHECK(mapping_flags(p).find(" nh ") != std::string::npos);
    c->buffer_destroy(c.get(), b);
}
