#include "kv/rig.hpp"
#include "platform/memory.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape small_shape(keel_dtype dtype = KEEL_DTYPE_F32) { return kv_shape(100, dtype, 3); }

std::vector<std::vector<int64_t>> same(uint32_t heads, std::vector<int64_t> list) {
    return std::vector<std::vector<int64_t>>(heads, list);
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
    std::vector<int64_t> out(static_cast<size_t>(end - begin));
    std::iota(out.begin(), out.end(), begin);
    return out;
}

void compact_all(Rig &rig, KvCache &cache, const std::vector<KeepLists> &keep) {
    for (uint32_t l = 0; l < keep.size(); ++l) cache.compact(l, keep[l], rig.gather());
    cache.publish();
}

// Returns a cache that contains only these tokens, appended in one step.
std::unique_ptr<KvCache> from_scratch(Rig &rig, const std::vector<int64_t> &tokens) {
    auto cache = rig.make_cache();
    std::vector<int32_t> positions(tokens.begin(), tokens.end());
    cache->append(positions, std::ssize(tokens));
    rig.write(*cache, tokens, positions);
    return cache;
}

} // namespace

TEST_CASE("A cache holds the written rows at the given positions") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvShape shape = small_shape();
        Rig rig(device, shape);
        auto cache = rig.make_cache();
        for (const int64_t n : {1, 6, 1, 8, 1, 30}) rig.feed(*cache, cache->max_length(), n);
        REQUIRE(cache->max_length() == 47);
        const auto query = rig.tokens().query(1, 47);
        for (uint32_t l = 0; l < shape.layers; ++l) {
            const auto all = same(shape.kv_heads, range(0, 47));
            CHECK(largest_difference(rig.attention(*cache, l, query),
                                     rig.expected(l, query, all, all)) < 1e-5);
            for (uint32_t h = 0; h < shape.kv_heads; ++h) {
                const auto positions = rig.device_positions(*cache, l, h);
                CHECK(std::equal(positions.begin(), positions.end(), cache->positions(l, h).begin(),
                                 cache->positions(l, h).end()));
                CHECK(positions.back() == 46);
            }
        }
        // Each head has 6 blocks.
        CHECK(cache->bytes_in_use() == 6 * 2 * 2 * shape.block_bytes());
        CHECK(cache->arena().bytes_in_use() == cache->bytes_in_use());
    }
}

TEST_CASE("Compaction that keeps all slots changes nothing, bit for bit") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvShape shape = small_shape();
        Rig rig(device, shape);
        auto cache = rig.make_cache();
        rig.feed(*cache, 0, 33);
        const auto query = rig.tokens().query(2, 33);
        const auto before = rig.attention(*cache, 1, query);
        const auto ops = rig.executor().stream().counters().ops;
        KeepLists all(shape.kv_heads, std::vector<int32_t>(33));
        for (auto &list : all) std::iota(list.begin(), list.end(), 0);
        CHECK(cache->compact(1, all, rig.gather()) == 0);
        CHECK(rig.executor().stream().counters().ops == ops);
        CHECK(rig.attention(*cache, 1, query) == before);
    }
}

TEST_CASE(
    "Attention after compaction equals attention over only the kept slots, for each KV dtype") {
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype :
             {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
            INFO(device << ' ' << keel_dtype_name(dtype));
            const KvShape shape = small_shape(dtype);
            Rig rig(device, shape);
            auto cache = rig.make_cache();
            rig.feed(*cache, 0, 61);
            std::vector<int64_t> kept = {0, 1, 7, 8, 9, 23, 24, 40, 41, 42, 59, 60};
            const std::vector<int32_t> list(kept.begin(), kept.end());
            compact_all(rig, *cache, std::vector<KeepLists>(2, KeepLists(2, list)));
            CHECK(cache->max_length() == 12);
            rig.feed(*cache, 61, 3); // the cache continues
            for (const int64_t t : {61, 62, 63}) kept.push_back(t);
            auto fresh = from_scratch(rig, kept);
            const auto query = rig.tokens().query(3, 64);
            for (uint32_t l = 0; l < shape.layers; ++l) {
                // The same rows in the same slots give the same bits.
                CHECK(rig.attention(*cache, l, query) == rig.attention(*fresh, l, query));
                CHECK(rig.keys(*cache, l) == rig.keys(*fresh, l));
                CHECK(rig.device_positions(*cache, l, 1) == rig.device_positions(*fresh, l, 1));
                if (dtype != KEEL_DTYPE_F32) continue;
                const auto lists = same(2, kept);
                CHECK(largest_difference(rig.attention(*cache, l, query),
                                         rig.expected(l, query, lists, lists)) < 1e-5);
            }
        }
    }
}

TEST_CASE("Heads of different length keep their own slots and free their own blocks") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvShape shape = small_shape();
        Rig rig(device, shape);
        auto cache = rig.make_cache();
        rig.feed(*cache, 0, 40);
        const uint64_t before = cache->bytes_in_use();
        // In layer 0, head 0 keeps three slots and head 1 all. In layer 1, head 0 keeps none and
        // head 1 every third.
        std::vector<int32_t> all(40), thirds;
        std::iota(all.begin(), all.end(), 0);
        for (int32_t s = 0; s < 40; s += 3) thirds.push_back(s);
        compact_all(rig, *cache, {{{2, 5, 39}, all}, {{}, thirds}});
        CHECK(before - cache->bytes_in_use() == (4 + 5 + 3) * shape.block_bytes());
        rig.feed(*cache, 40, 2);
        const auto query = rig.tokens().query(4, 42);
        const std::vector<std::vector<std::vector<int64_t>>> kept = {
            {{2, 5, 39, 40, 41}, range(0, 42)},
            {{40, 41}, {0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 40, 41}}};
        for (uint32_t l = 0; l < 2; ++l)
            CHECK(largest_difference(rig.attention(*cache, l, query),
                                     rig.expected(l, query, kept[l], kept[l])) < 1e-5);
    }
}

TEST_CASE(
    "A fork shares blocks, and neither side sees the other's writes, evictions and truncations") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvShape shape = small_shape(KEEL_DTYPE_F16);
        Rig rig(device, shape);
        auto parent = rig.make_cache();
        rig.feed(*parent, 0, 29); // the last block is shared and not full
        const auto query = rig.tokens().query(5, 29);
        const auto before = rig.attention(*parent, 1, query);
        const uint64_t bytes = parent->arena().bytes_in_use();
        auto child = parent->fork();
        auto other = parent->fork();
        CHECK(parent->arena().bytes_in_use() == bytes);
        CHECK(rig.attention(*child, 1, query) == before);

        rig.feed(*child, 29, 1);
        CHECK(parent->arena().bytes_in_use() ==
              bytes + 4 * shape.block_bytes()); // the last blocks were copied
        CHECK(rig.attention(*parent, 1, query) == before);
        compact_all(rig, *other, std::vector<KeepLists>(2, KeepLists(2, {0, 9, 28})));
        CHECK(rig.attention(*parent, 1, query) == before);
        auto other_fresh = from_scratch(rig, {0, 9, 28});
        CHECK(rig.attention(*other, 1, query) == rig.attention(*other_fresh, 1, query));
        other_fresh.reset();
        other.reset();
        compact_all(rig, *child, std::vector<KeepLists>(2, KeepLists(2, {0, 1, 2, 28, 29})));
        CHECK(rig.attention(*parent, 1, query) == before);

        // the parent continues, and its last block is not shared any more
        rig.feed(*parent, 100, 1);
        parent->truncate(1);
        CHECK(rig.attention(*parent, 1, query) == before);
        const auto fresh = from_scratch(rig, {0, 1, 2, 28, 29});
        CHECK(rig.attention(*child, 1, query) == rig.attention(*fresh, 1, query));
        parent.reset(); // the child can still be used
        CHECK(rig.attention(*child, 1, query) == rig.attention(*fresh, 1, query));
    }
}

TEST_CASE("Truncation takes tokens back and frees their blocks") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvShape shape = small_shape();
        Rig rig(device, shape);
        auto cache = rig.make_cache();
        rig.feed(*cache, 0, 20);
        rig.feed(*cache, 90, 15);
        cache->truncate(15);
        CHECK(cache->bytes_in_use() == 3 * 4 * shape.block_bytes());
        rig.feed(*cache, 20, 5);
        const auto query = rig.tokens().query(6, 25);
        const auto all = same(2, range(0, 25));
        CHECK(largest_difference(rig.attention(*cache, 0, query),
                                 rig.expected(0, query, all, all)) < 1e-5);
        cache->clear();
        CHECK(cache->arena().bytes_in_use() == 0);
    }
}

TEST_CASE("Tokens that do not fit are refused with the key to change, and change nothing") {
    KvShape shape = small_shape();
    Rig rig("reference", shape);
    auto cache = rig.make_cache();
    rig.feed(*cache, 0, 98);
    std::string why;
    CHECK(cache->fits(2));
    CHECK_FALSE(cache->fits(3, &why));
    CHECK_THAT(why, Contains("model.context = 100"));
    const std::vector<int32_t> positions = {98, 99, 100};
    CHECK_THAT(error_text([&] { cache->append(positions, 3); }, ErrorKind::resource),
               Contains("model.context"));
    CHECK(cache->max_length() == 98);

    shape.max_bytes = 4 * 3 * shape.block_bytes(); // three blocks for each head
    Rig capped("reference", shape);
    auto small = capped.make_cache();
    capped.feed(*small, 0, 24);
    CHECK_FALSE(small->fits(1, &why));
    CHECK_THAT(why, Contains("kv.max_mib"));
    CHECK_THAT(error_text([&] { small->append(std::vector<int32_t>{24}, 1); }, ErrorKind::resource),
               Contains("kv.max_mib"));
    CHECK(small->arena().bytes_in_use() == shape.max_bytes);
    CHECK_THAT(why, !Contains(" 0.0 MiB") &&
                        !Catch::EndsWith("= 0.0")); // small numbers are not printed as zero
}

TEST_CASE(
    "Evicting from a fork is refused before any change if a layer lacks blocks for the copies") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        KvShape shape = small_shape();
        shape.sequences = 1; // there are blocks for one full cache, and none for a copy
        Rig rig(device, shape);
        auto parent = rig.make_cache();
        rig.feed(*parent, 0, shape.max_slots);
        auto child = parent->fork();
        KeepLists all_but_first(2);
        for (auto &list : all_but_first) {
            for (int32_t slot = 1; slot < shape.max_slots; ++slot) list.push_back(slot);
        }
        KeepLists all = all_but_first;
        for (auto &list : all) list.insert(list.begin(), 0);
        std::string why;
        CHECK(child->can_compact(std::vector<KeepLists>{all, all}, &why));
        CHECK_FALSE(child->can_compact(std::vector<KeepLists>{all, all_but_first}, &why));
        CHECK_THAT(why, Contains("layer 1") && Contains("0 blocks are free"));
        const uint64_t bytes = parent->arena().bytes_in_use();
        child.reset();
        CHECK(parent->arena().bytes_in_use() == bytes);
        parent->truncate(shape.max_slots - 1);
        CHECK(parent->arena().bytes_in_use() == 4 * shape.block_bytes());
    }
}

TEST_CASE("Impossible dtypes or sizes of a cache are refused with the names of the config") {
    KvShape shape = small_shape(KEEL_DTYPE_Q8_0);
    shape.head_dim = 40;
    CHECK_THAT(error_text([&] { shape.check(); }), Contains("kv.key_dtype") && Contains("q8_0"));
}

// A model of the cache with plain lists. The same operations run on both.
struct Model {
    std::vector<std::vector<int64_t>> heads; // tokens of [layers * kv_heads]
};

TEST_CASE("Random operations on a cache and its forks agree with plain lists, within kv.max_mib") {
    for (const std::string &device : kv_devices()) {
        KvShape shape = small_shape(KEEL_DTYPE_Q8_0);
        shape.max_bytes = 4 * 14 * shape.block_bytes();
        Rig rig(device, shape);
        std::mt19937 random(7);
        std::deque<std::pair<std::unique_ptr<KvCache>, Model>> live;
        live.emplace_back(rig.make_cache(), Model{std::vector<std::vector<int64_t>>(4)});
        const KvArena &arena = live.front().first->arena();
        int64_t next = 0, refused = 0, compactions = 0;
        for (int step = 0; step < 250; ++step) {
            INFO(device << " step " << step);
            const size_t which = random() % live.size();
            auto &[cache, model] = live[which];
            const unsigned what = random() % 10;
            if (what < 5) {
                const int64_t n = 1 + random() % 20;
                if (!cache->fits(n)) {
                    ++refused;
                    cache->truncate(n);
                    for (auto &list : model.heads)
                        list.resize(
                            static_cast<size_t>(std::max<int64_t>(0, std::ssize(list) - n)));
                    continue;
                }
                rig.feed(*cache, next, n);
                for (auto &list : model.heads) {
                    for (int64_t t = 0; t < n; ++t) list.push_back(next + t);
                }
                next += n;
            } else if (what < 8) {
                std::vector<KeepLists> keep(2, KeepLists(2));
                Model after = model;
                for (size_t i = 0; i < 4; ++i) {
                    after.heads[i].clear();
                    for (size_t s = 0; s < model.heads[i].size(); ++s) {
                        if (random() % 3 == 0) continue;
                        keep[i / 2][i % 2].push_back(static_cast<int32_t>(s));
                        after.heads[i].push_back(model.heads[i][s]);
                    }
                }
                std::string why;
                // copying shared blocks would exceed the limit
                if (!cache->can_compact(keep, &why)) {
                    CHECK_THAT(why, Contains("kv.max_mib"));
                    ++refused;
                    continue;
                }
                compact_all(rig, *cache, keep);
                model = after;
                ++compactions;
            } else if (what == 8 && live.size() < 3) {
                auto child = cache->fork();
                Model copy = model;
                live.emplace_back(std::move(child), std::move(copy));
            } else if (what == 9 && live.size() > 1) {
                live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
            }
            REQUIRE(arena.bytes_in_use() <= shape.max_bytes);
            uint64_t held = 0;
            for (const auto &[c, m] : live) {
                held += c->bytes_in_use();
                for (uint32_t i = 0; i < 4; ++i) {
                    const auto positions = c->positions(i / 2, i % 2);
                    REQUIRE(std::equal(positions.begin(), positions.end(), m.heads[i].begin(),
                                       m.heads[i].end()));
                }
            }
            REQUIRE(arena.bytes_in_use() <= held);
            if (step % 25 != 24) continue;
            for (const auto &[c, m] : live) {
                for (uint32_t i = 0; i < 4; ++i) {
                    const auto on_device = rig.device_positions(*c, i / 2, i % 2);
                    REQUIRE(std::equal(on_device.begin(), on_device.end(), m.heads[i].begin(),
                                       m.heads[i].end()));
                }
                const auto keys = rig.keys(*c, 1);
                const int64_t longest = std::max<int64_t>(1, c->max_length(1));
                for (uint32_t h = 0; h < 2; ++h) {
                    for (size_t s = 0; s < m.heads[2 + h].size(); ++s) {
                        const int64_t token = m.heads[2 + h][s];
                        const auto key = rig.tokens().key(token, 1, h, token);
                        const float *row =
                            keys.data() + (h * static_cast<size_t>(longest) + s) * 32;
                        REQUIRE(largest_difference({row, 32}, key) <
                                0.01); // bound for q8_0 of values up to 1
                    }
                }
            }
        }
        CHECK(refused > 0);
        CHECK(compactions > 20);
        live.resize(1);
        live.front().first->clear();
        CHECK(arena.bytes_in_use() == 0);
    }
}

TEST_CASE("An arena without reserved memory grows by copying and shrinks when blocks become free") {
    const KvShape shape = small_shape();
    Rig rig("copying", shape);
    auto cache = rig.make_cache();
    rig.feed(*cache, 0, 8);
    const uint64_t small = cache->arena().bytes_resident();
    rig.feed(*cache, 8, 90);
    CHECK(cache->arena().bytes_resident() >= cache->bytes_in_use());
    CHECK(cache->arena().bytes_resident() > 4 * small);
    const auto query = rig.tokens().query(8, 98);
    const auto all = same(2, range(0, 98));
    CHECK(largest_difference(rig.attention(*cache, 1, query), rig.expected(1, query, all, all)) <
          1e-5);
    cache->truncate(94);
    CHECK(cache->arena().bytes_resident() <= 2 * small);
    const auto few = same(2, range(0, 4));
    CHECK(largest_difference(rig.attention(*cache, 1, query), rig.expected(1, query, few, few)) <
          1e-5);
}

TEST_CASE("Evicted blocks are returned to the system") {
    need_cpu_plugin();
    KvShape shape = small_shape();
    shape.kv_heads = shape.heads = 4;
    shape.head_dim = 128;
    shape.block_slots = 64;
    shape.max_slots = 8192;
    shape.sequences = 1;
    Rig rig("cpu", shape);
    auto cache = rig.make_cache();
    const uint64_t empty = resident_bytes();
    rig.feed(*cache, 0, 4096);
    const uint64_t full = resident_bytes();
    const uint64_t held = cache->bytes_in_use(); // 32 MiB
    CHECK(full - empty > held * 9 / 10);
    std::vector<int32_t> list;
    for (int32_t s = 3840; s < 4096; ++s) list.push_back(s);
    compact_all(rig, *cache, std::vector<KeepLists>(2, KeepLists(4, list)));
    rig.executor().stream().wait();
    const uint64_t after = resident_bytes();
    CHECK(cache->bytes_in_use() == held / 16);
    CHECK(full - after > held * 8 / 10);
}

TEST_CASE("Blocks smaller than a page are returned to the system too") {
    need_cpu_plugin();
    KvShape shape = small_shape(KEEL_DTYPE_Q8_0); // blocks of 272 bytes
    shape.max_slots = 4096;
    Rig rig("cpu", shape);
    auto cache = rig.make_cache();
    const auto empty = rig.executor().device().mem_info().ours;
    rig.feed(*cache, 0, 4000);
    const auto full = rig.executor().device().mem_info().ours;
    CHECK(full - empty >= cache->bytes_in_use());
    cache->truncate(4000);
    CHECK(rig.executor().device().mem_info().ours - empty <= 64 * page_size());
}

TEST_CASE("A compaction that fails gives its new blocks back") {
    const KvShape shape = small_shape(KEEL_DTYPE_F16);
    // A new block takes two commits, for K and V. A compaction of one layer takes two blocks here.
    for (const auto &[nth, slot] : {std::pair{1, "buffer_commit"}, std::pair{2, "buffer_commit"},
                                    std::pair{3, "buffer_commit"}, std::pair{4, "buffer_commit"},
                                    std::pair{1, "kv_gather"}}) {
        INFO(slot << " " << nth);
        WrappingBackend wrapping;
        Executor executor(wrapping.open(), {});
        const OpHandle gather = KvCache::plan_gather(executor, shape, 0);
        KvCache cache(executor, shape, executor.placement());
        std::vector<int32_t> positions(29);
        std::iota(positions.begin(), positions.end(), 0);
        cache.append(positions, 29);
        const auto child = cache.fork();
        const uint64_t bytes = cache.arena().bytes_in_use(), free = cache.arena().free_blocks(0);
        const KeepLists keep(2, {0, 9, 28});
        wrapping.fail_nth(static_cast<uint64_t>(nth), KEEL_E_OUT_OF_MEMORY, slot);
        error_text([&] { child->compact(0, keep, *gather); }, ErrorKind::resource);
        CHECK(wrapping.fault_fired());
        wrapping.clear_fault();
        CHECK(cache.arena().bytes_in_use() == bytes);
        CHECK(cache.arena().free_blocks(0) == free);
        CHECK(child->length(0, 0) == 29);
        child->compact(0, keep, *gather);
        CHECK(child->length(0, 0) == 3);
        // No block was lost: the two caches and one more fill the arena.
        const auto third = cache.fork();
        third->truncate(29);
        third->append(std::vector<int32_t>(100), 100);
        CHECK(cache.arena().bytes_in_use() > bytes);
    }
}
