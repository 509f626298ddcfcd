// Tests of the cache of layers with an attention window, alone and together with the cache of the
// other layers.
#include "kv/manager_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t window = 20, step = 12; // blocks have 8 slots

KvShape windowed_shape() {
    KvShape shape = kv_shape(100, KEEL_DTYPE_F32, 3);
    shape.window = window;
    shape.max_slots = window_slots(window, step, shape.block_slots);
    return shape;
}

// A main cache of 2 layers, and a window cache of 2 layers.
KvLayout mixed_layout() {
    KvLayout layout;
    layout.shape = kv_shape(300, KEEL_DTYPE_F32, 3);
    layout.windowed.shape = windowed_shape();
    layout.windowed.has_window = {true, true, false, false};
    layout.windowed.slots = windowed_shape().max_slots;
    return layout;
}

LayerCaches make(Rig &rig, const KvLayout &layout) {
    return {rig.executor(), layout, rig.executor().placement()};
}

// Appends tokens in steps, and writes their rows and positions.
void feed(Rig &rig, LayerCaches &caches, int64_t first, int64_t n) {
    for (int64_t done = 0; done < n;) {
        const int64_t m = std::min(step, n - done);
        std::vector<int32_t> positions(static_cast<size_t>(m));
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first + done));
        const std::vector<int64_t> tokens(positions.begin(), positions.end());
        caches.append(positions, m);
        rig.write(caches.main(), tokens, positions);
        if (caches.window() != nullptr) rig.write(*caches.window(), tokens, positions);
        caches.hold_windows();
        done += m;
    }
}

// Checks that each head holds the last tokens of the `seen` tokens, on the host and on the device.
void check_newest(Rig &rig, KvCache &cache, int64_t seen) {
    const KvShape &shape = cache.shape();
    const int64_t held = shape.held_slots(seen);
    for (uint32_t l = 0; l < shape.layers; ++l) {
        for (uint32_t h = 0; h < shape.kv_heads; ++h) {
            REQUIRE(cache.length(l, h) == held);
            for (int64_t i = 0; i < held; ++i)
                REQUIRE(cache.positions(l, h)[static_cast<size_t>(i)] == seen - held + i);
            const auto device = rig.device_positions(cache, l, h);
            REQUIRE(std::equal(device.begin(), device.end(), cache.positions(l, h).begin()));
        }
    }
    CHECK(cache.bytes_in_use() == shape.bytes_of(held));
}

} // namespace

TEST_CASE("A cache with a window frees the blocks whose tokens no later query sees") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvShape shape = windowed_shape();
        Rig rig(device, shape);
        auto cache = rig.make_cache();
        int64_t seen = 0;
        for (const int64_t n : {12, 12, 1, 12, 7, 12, 1, 1, 12, 3, 12, 12}) {
            rig.feed(*cache, seen, n);
            seen += n;
            cache->hold_window(seen);
            check_newest(rig, *cache, seen);
            // The next query sees the tokens after seen - window. One more block may stay.
            CHECK(cache->first_position() <= std::max<int64_t>(0, seen - window + 1));
            CHECK(cache->max_length() < window + 2 * int64_t{shape.block_slots});
            for (uint32_t l = 0; l < shape.layers; ++l) {
                const auto keys = rig.keys(*cache, l);
                const int64_t held = cache->max_length();
                for (uint32_t h = 0; h < shape.kv_heads; ++h) {
                    for (int64_t i = 0; i < held; ++i) {
                        const int64_t token = seen - held + i;
                        const auto key = rig.tokens().key(token, l, h, token);
                        const size_t row = static_cast<size_t>((h * held + i) * shape.head_dim);
                        REQUIRE(std::equal(key.begin(), key.end(),
                                           keys.begin() + static_cast<std::ptrdiff_t>(row)));
                    }
                }
            }
        }
        CHECK(cache->arena().bytes_in_use() == cache->bytes_in_use());
    }
}

TEST_CASE("Layers with and without a window have their views in the order of the layers") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvLayout layout = mixed_layout();
        Rig rig(device, layout.shape);
        LayerCaches caches = make(rig, layout);
        feed(rig, caches, 0, 120);
        REQUIRE(caches.views().size() == 4);
        const std::vector<const keel_kv_view *> expected = {
            caches.window()->view(0), caches.window()->view(1), caches.main().view(0),
            caches.main().view(1)};
        CHECK(std::equal(expected.begin(), expected.end(), caches.views().begin()));
        check_newest(rig, caches.main(), 120);
        check_newest(rig, *caches.window(), 120);
        CHECK(caches.bytes_in_use() ==
              layout.shape.bytes_of(120) +
                  layout.windowed.shape.bytes_of(caches.window()->max_length()));
    }
}

TEST_CASE("Tokens can be taken back while the window's keys exist, and all tokens always") {
    const KvLayout layout = mixed_layout();
    Rig rig("reference", layout.shape);
    LayerCaches caches = make(rig, layout);
    feed(rig, caches, 0, 15);
    CHECK(caches.can_truncate(15));
    CHECK(caches.can_truncate(14));
    feed(rig, caches, 15, 105);
    const int64_t most = 120 - window + 1 - caches.window()->first_position();
    REQUIRE(most >= 8);
    CHECK(caches.can_truncate(most));
    std::string why;
    CHECK_FALSE(caches.can_truncate(most + 1, &why));
    CHECK_THAT(why, Contains("attention window of 20 tokens") && Contains(std::to_string(most)));
    CHECK(caches.can_truncate(120));
    caches.truncate(most);
    feed(rig, caches, 120 - most, 30);
    check_newest(rig, *caches.window(), 150 - most);
    caches.truncate(150 - most);
    CHECK(caches.bytes_in_use() == 0);
    feed(rig, caches, 0, 40);
    check_newest(rig, *caches.window(), 40);
}

TEST_CASE("A fork and its parent have independent windows") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvLayout layout = mixed_layout();
        Rig rig(device, layout.shape);
        LayerCaches parent = make(rig, layout);
        feed(rig, parent, 0, 50);
        {
            LayerCaches fork = parent.fork();
            CHECK(fork.window()->arena().bytes_in_use() == parent.window()->bytes_in_use());
            feed(rig, fork, 50, 61);
            check_newest(rig, *fork.window(), 111);
            check_newest(rig, *parent.window(), 50);
        }
        feed(rig, parent, 50, 20);
        check_newest(rig, *parent.window(), 70);
        CHECK(parent.window()->arena().bytes_in_use() == parent.window()->bytes_in_use());
    }
}

TEST_CASE("A repetition of the context does not change the window cache") {
    const KvLayout layout = mixed_layout();
    Rig rig("reference", layout.shape);
    LayerCaches caches = make(rig, layout);
    feed(rig, caches, 0, 90);
    const keel_kv_view *own = caches.views()[0];
    for (int piece = 0; piece < 2; ++piece) {
        caches.begin_repeat();
        CHECK(caches.views()[0] != own);
        for (int64_t done = 0; done < 60; done += step) {
            std::vector<int32_t> positions(static_cast<size_t>(step));
            std::iota(positions.begin(), positions.end(), static_cast<int32_t>(90 + done));
            caches.append_repeated(positions);
            caches.hold_repeated(90 + done + step);
        }
    }
    caches.end_repeat();
    CHECK(caches.views()[0] == own);
    check_newest(rig, *caches.window(), 90);
    CHECK(caches.window()->arena().bytes_in_use() == caches.window()->bytes_in_use());
}

TEST_CASE("Both caches are saved, loaded and moved") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        const KvLayout layout = mixed_layout();
        Rig rig(device, layout.shape);
        LayerCaches caches = make(rig, layout);
        feed(rig, caches, 0, 77);
        Memory memory;
        caches.save(memory);

        LayerCaches loaded = make(rig, layout);
        StateReader in(memory.bytes, "a session");
        loaded.load(in, 77);
        CHECK(in.left() == 0);
        check_newest(rig, *loaded.window(), 77);
        feed(rig, loaded, 77, 20);
        check_newest(rig, *loaded.window(), 97);

        KvLayout other = layout; // another backend has other blocks
        other.shape.block_slots = other.windowed.shape.block_slots = 16;
        other.windowed.shape.max_slots = window_slots(window, step, 16);
        LayerCaches moved = make(rig, other);
        moved.reserve_like(caches);
        CHECK(moved.take_rows(caches) > 0);
        CHECK(caches.bytes_in_use() == 0);
        CHECK(moved.window()->max_length() == layout.windowed.shape.held_slots(77));
        feed(rig, moved, 77, 40);
        CHECK(moved.window()->first_position() <= 117 - window + 1);
    }
}

TEST_CASE("A saved window cache without its newest tokens is refused") {
    const KvLayout layout = mixed_layout();
    Rig rig("reference", layout.shape);
    LayerCaches caches = make(rig, layout);
    feed(rig, caches, 0, 77);
    Memory memory;
    caches.save(memory);
    LayerCaches loaded = make(rig, layout);
    StateReader in(memory.bytes, "a session");
    CHECK_THAT(error_text([&] { loaded.load(in, 80); }, ErrorKind::input),
               Contains("a session: ") && Contains("window of 20 tokens"));
}

TEST_CASE("A cache in which all layers have a window holds as many tokens as model.context") {
    KvLayout layout;
    layout.shape = windowed_shape();
    layout.max_tokens = 100;
    Rig rig("reference", layout.shape);
    LayerCaches caches = make(rig, layout);
    std::string why;
    CHECK(caches.fits(100));
    feed(rig, caches, 0, 95);
    CHECK(caches.main().max_length() == layout.shape.held_slots(95));
    CHECK(caches.fits(5));
    CHECK_FALSE(caches.fits(6, &why));
    CHECK_THAT(why, Contains("95 tokens") && Contains("model.context = 100"));
}

TEST_CASE("Gemma 3 270M's cache takes 105 MiB for 32k tokens in f16") {
    KvShape full;
    full.layers = 3;
    full.heads = 4;
    full.kv_heads = 1;
    full.head_dim = 256;
    full.max_slots = 32768;
    KvShape windowed = full;
    windowed.layers = 15;
    windowed.window = 512;
    windowed.max_slots = window_slots(512, 512, windowed.block_slots);
    constexpr uint64_t mib = 1 << 20;
    CHECK(full.bytes_of(32768) == 96 * mib);
    CHECK(windowed.held_slots(32768) == 576);
    CHECK(windowed.bytes_of(windowed.held_slots(32768)) == 8640 * 1024); // 8.44 MiB
    uint64_t most = 0; // maximum over any number of tokens
    for (int64_t tokens = 0; tokens <= 32768; ++tokens)
        most = std::max(most, windowed.bytes_of(windowed.held_slots(tokens)));
    CHECK(most == 9600 * 1024); // 9.38 MiB
    // during a step
    CHECK(windowed.bytes_of(windowed.max_slots) == 15 * 18 * windowed.block_bytes());
}

TEST_CASE("If a policy makes a step unusual, it is unusual with window layers too") {
    struct Unusual final : StepTap {
        Places places(uint32_t) override { return {}; }
        void after_attention(uint32_t, const Tensor &) override {}
        bool is_usual() const override { return false; }
    } tap;
    CHECK_FALSE(LayerTap({}).over(&tap)->is_usual());
    LayerTap mixed({true, false});
    CHECK_FALSE(mixed.over(&tap)->is_usual());
}
