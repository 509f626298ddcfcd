// Tests of the bound of a cache's length that recorded steps use.
#include "graph/lasting_views.hpp"

#include "device/tensor.hpp"

#include <catch2/catch.hpp>

using namespace keel;

namespace {

// A cache without memory. It has `blocks` blocks of 8 slots in each of two heads.
struct EmptyCache {
    EmptyCache(int64_t length, int64_t blocks) : table(Tensor::shape(KEEL_DTYPE_I32, {2, blocks})) {
        view.block_table = table.c();
        view.block_slots = 8;
        view.max_length = length;
    }
    EmptyCache(const EmptyCache &) = delete;
    Tensor table;
    keel_kv_view view = {KEEL_HEADER(keel_kv_view)};
};

int64_t bound(int64_t length, int64_t blocks = 1 << 20) {
    const EmptyCache cache(length, blocks);
    const keel_kv_view *view = &cache.view;
    LastingViews lasting;
    return lasting.of({&view, 1})[0]->max_length;
}

} // namespace

TEST_CASE("the bound is a multiple of 64, and for long caches of an eighth of the length") {
    CHECK(bound(1) == 64);
    CHECK(bound(64) == 64);
    CHECK(bound(65) == 128);
    CHECK(bound(512) == 512);
    CHECK(bound(513) == 576); // the bound grows in steps of 64 = 512 / 8
    CHECK(bound(1024) == 1024);
    CHECK(bound(1025) == 1152); // in steps of 128 = 1024 / 8
    CHECK(bound(2048) == 2048);
    CHECK(bound(2049) == 2304);     // in steps of 256
    CHECK(bound(100000) == 106496); // in steps of 8192 = 65536 / 8; this is 13 steps
    CHECK(bound(0) == 0);
}

TEST_CASE("the bound is at most the number of slots in the block table") {
    CHECK(bound(70, 10) == 80);
    CHECK(bound(80, 10) == 80);
    CHECK(bound(70, 16) == 128);
}

TEST_CASE("the caches of all layers keep their order, and the caches themselves do not change") {
    const EmptyCache a(10, 100), b(600, 100), c(65, 100);
    const std::vector<const keel_kv_view *> layers = {&a.view, &b.view, &c.view};
    LastingViews lasting;
    const auto lasts = lasting.of(layers);
    REQUIRE(lasts.size() == 3);
    const int64_t expected[] = {64, 640, 128};
    for (size_t i = 0; i < 3; ++i) {
        CHECK(lasts[i]->max_length == expected[i]);
        CHECK(lasts[i]->block_table == layers[i]->block_table);
        CHECK(lasts[i] != layers[i]);
    }
    CHECK(b.view.max_length == 600);
    CHECK(lasting.of(std::span(layers).first(1)).size() == 1);
}
