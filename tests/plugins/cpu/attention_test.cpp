// Tests of properties of this backend's attention that the conformance program cannot know: how the
// work is divided, and which results must not depend on the division.
#include "attention_rig.hpp"

using namespace keel;
using namespace keel::test;

TEST_CASE("a long cache that is split into parts gives the result of one pass") {
    // With scores for several queries, the slots are not split into parts.
    for (const bool scored : {true, false}) {
        const auto compare = [&](const CacheShape &shape, int64_t m, int64_t heads_each) {
            Call call(shape, m, heads_each);
            if (!scored) call.features &= ~uint64_t{KEEL_ATTENTION_SCORES};
            compare_with_reference(call);
        };
        // 2 x 512 slots is the shortest cache that is split. Heads of different length are split
        // differently.
        for (const int32_t length : {1023, 1024, 1025, 1600, 2300}) {
            INFO(length);
            compare(cache_of({length, 700, 3}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 1, 2);
            compare(cache_of({length}, 16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0), 3, 8);
        }
        compare(cache_of({1500}, 256, KEEL_DTYPE_BF16, KEEL_DTYPE_F32), 20, 9);
    }
}

TEST_CASE("many query rows that share a chunk of slots give the result of the reference") {
    // 32 tiles of 96 rows and more: the slots are not split, and the tiles become wide.
    compare_with_reference({cache_of({700, 230}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0), 200, 8});
    CacheShape shape = cache_of({600, 512}, 16, KEEL_DTYPE_Q4_0, KEEL_DTYPE_BF16);
    shape.head_dim = 96, shape.v_head_dim = 48;
    compare_with_reference({shape, 230, 7});
    Call windowed(cache_of({610, 610}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 200, 8,
                  KEEL_ATTENTION_WINDOW);
    Tensor &t = windowed.scene.tensors[windowed.scene.caches[windowed.cache].positions];
    std::vector<int32_t> positions;
    for (int64_t j = 0; j < t.elements(); ++j) positions.push_back(static_cast<int32_t>(j % 610));
    t.set_integers(positions);
    windowed.window = 100;
    compare_with_reference(windowed);
    Call infinite(cache_of({640, 640}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 200, 8);
    poison_slot(infinite, infinite.scene.caches[infinite.cache].v, 0, 560, INFINITY);
    compare_with_reference(infinite);
}

TEST_CASE("logits that rise from tile to tile of slots raise the maximum of a row") {
    for (const float rise :
         // scaled to 3, 8 and -8: below the limit that changes the max, above it, and never
         {0.75F, 2.0F, -2.0F}) {
        Call call(cache_of({650, 650}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 200, 8);
        Tensor &q = call.scene.tensors[call.q];
        q.set(std::vector<float>(static_cast<size_t>(q.elements()),
                                 0.5F)); // products of bf16 are exact here
        fill_slots(
            call, call.scene.caches[call.cache].k, {0, 2}, 0, 650, [=](int64_t, int64_t slot) {
                return rise * static_cast<float>(slot / 64) + 0.25F * static_cast<float>(slot % 3);
            });
        compare_with_reference(call);
    }
}

TEST_CASE("parts that a model's window hides have no effect") {
    for (const int64_t m : {1, 2}) {
        Call call(cache_of({2300}, 64, KEEL_DTYPE_F32, KEEL_DTYPE_F16), m, 4,
                  KEEL_ATTENTION_WINDOW);
        std::vector<int32_t> positions;
        Tensor &t = call.scene.tensors[call.scene.caches[call.cache].positions];
        for (int64_t j = 0; j < t.elements(); ++j) positions.push_back(static_cast<int32_t>(j));
        t.set_integers(positions);
        for (const int64_t window : {1, 64, 700}) {
            call.window = window;
            compare_with_reference(call);
        }
    }
}

TEST_CASE("the result does not depend on the number of threads, bit for bit") {
    for (const int64_t m : {1, 3, 70, 400}) { // the last number gives wide tiles of rows
        INFO(m << " queries");
        compare_threads(cpu_library(), {},
                        {cache_of({2100, 900}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0), m, 4});
    }
}

TEST_CASE("a last task with few rows uses the same kernels as the other tasks") {
    for (const Variant &v : variants()) {
        if (!v.rounds()) continue;
        INFO(v.word);
        // One, two and eight rows more than a tile. A job with so few rows would not use bf16,
        // would not transpose keys, or would not use tiles of slots in pairs.
        for (const int64_t m : {97, 98, 104}) {
            INFO(m << " queries");
            CacheShape shape =
                cache_of(std::vector<int32_t>(32, 150), 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16);
            shape.head_dim = shape.v_head_dim = 32;
            compare_threads(*v.library, {{"isa", v.isa}}, {shape, m, 1});
        }
        CacheShape shape = cache_of({640, 450}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0);
        shape.head_dim = shape.v_head_dim = 32;
        compare_threads(*v.library, {{"isa", v.isa}}, {shape, 389, 4});
    }
}

TEST_CASE("an infinity in a value affects only the queries that see it") {
    for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16})
        for (const int64_t group : {1, 12}) { // few and many rows use different kernels
            Call call(cache_of({100}, 64, dtype, dtype), 6, group);
            poison_slot(call, call.scene.caches[call.cache].v, 0, 97, INFINITY);
            poison_slot(call, call.scene.caches[call.cache].k, 0, 98, NAN);
            compare_with_reference(call);
            Side side(cpu_library(), {});
            Stage stage(side, call.scene, {});
            REQUIRE(call.run(stage) == KEEL_OK);
            const std::vector<double> out = call.values(stage, call.out);
            const size_t query = static_cast<size_t>(group) * 64;
            CHECK(std::isfinite(out[2 * query])); // this query sees slots up to 96
            CHECK_FALSE(std::isfinite(out[3 * query]));
            CHECK(std::isnan(out[4 * query])); // this query also sees the key that is NaN
        }
}

TEST_CASE("a block table that points outside the arena is refused before anything is written") {
    for (const int32_t wrong : {-1, 1 << 30}) {
        Call call(cache_of({200}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 1, 2);
        Tensor &table = call.scene.tensors[call.scene.caches[call.cache].table];
        std::vector<int32_t> blocks = table.integers_of(table.image);
        blocks[3] = wrong; // the block of slots 192..199
        table.set_integers(blocks);
        Side side(cpu_library(), {});
        Stage stage(side, call.scene, {});
        CHECK(call.run(stage) == KEEL_E_INVALID_ARG);
        CHECK(side.error().find("block table of head 0, entry 3") != std::string::npos);
        CHECK(stage.read(call.out) == call.scene.tensors[call.out].image);
    }
}

TEST_CASE("kv_rerotate refuses an invalid range of slots") {
    Scene scene;
    Rng rng(7);
    const int cache = add_cache(scene, rng, cache_of({40, 7}, 16, KEEL_DTYPE_F16, KEEL_DTYPE_F16));
    const TableSpec tables = add_tables(scene, 23, 64, KEEL_ROPE_HALF_SPLIT);
    const int rows = scene.add(integer_tensor({2, 40}, std::vector<int32_t>(80, 1)));
    for (const auto &[begin, end] : {std::pair{-1, 40}, std::pair{9, 8}, std::pair{-9, -8}}) {
        INFO(begin << " to " << end);
        Side side(cpu_library(), {});
        Stage stage(side, scene, {});
        const keel_rope_tables placed = place(tables, stage);
        keel_kv_rerotate_args a = {};
        a.h = KEEL_HEADER(keel_kv_rerotate_args);
        a.kv = stage.cache(cache);
        a.tables = &placed;
        a.row = a.new_positions = stage.tensor(rows);
        a.begin = begin, a.end = end;
        CHECK(stage.run(KEEL_OP_KV_REROTATE, a) == KEEL_E_INVALID_ARG);
        CHECK(side.error().find("are not a valid range") != std::string::npos);
        CHECK(stage.read(scene.caches[cache].k) == scene.tensors[scene.caches[cache].k].image);
    }
}

TEST_CASE("a plan names the kind of attention, the dtypes and the instruction set") {
    for (const Variant &v : variants()) {
        for (const std::string compute : {"exact", "fast"}) {
            const bool rounded = v.rounds() && compute == "fast";
            const std::string kernels = rounded ? v.word + " fast" : v.f32;
            Side side(*v.library, {{"isa", v.isa}, {"compute", compute}});
            const Call one(cache_of({80}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0), 1, 8);
            Stage decode(side, one.scene, {.planned = true});
            REQUIRE(one.run(decode) == KEEL_OK);
            CHECK(decode.kernel() == "attention decode f16/q8_0 " + kernels);
            const Call many(cache_of({80}, 64, KEEL_DTYPE_Q4_0, KEEL_DTYPE_BF16), 40, 4);
            Stage prefill(side, many.scene, {.planned = true});
            REQUIRE(many.run(prefill) == KEEL_OK);
            CHECK(prefill.kernel() == "attention prefill q4_0/bf16 " + kernels);
            const Call wide(cache_of({80}, 64, KEEL_DTYPE_F32, KEEL_DTYPE_F16), 1,
                            4); // f32 is not rounded
            Stage exact(side, wide.scene, {.planned = true});
            REQUIRE(wide.run(exact) == KEEL_OK);
            CHECK(exact.kernel() == "attention decode f32/f16 " + v.f32);
        }
    }
}

TEST_CASE("all group sizes, head sizes and ends of tiles give the result of the reference") {
    for (const int64_t group : {1, 2, 3, 4, 5, 7, 8, 9, 16, 40, 100})
        for (const int64_t m : {1, 2, 13})
            for (const int32_t length : {m == 13 ? 13 : 5, 17, 63, 64, 66, 129}) {
                if (group > 96 && m == 13) continue; // takes long with a sanitizer
                INFO(group << " heads a group, " << m << " queries, " << length << " slots");
                CacheShape shape = cache_of({length}, 16, KEEL_DTYPE_F16, KEEL_DTYPE_F16);
                shape.head_dim = group % 2 == 0 ? 64 : 40;
                shape.v_head_dim = group % 4 == 0 ? 64 : 24;
                Call call(shape, m, group);
                // with many rows, some logits are large otherwise
                if (group > 96) call.scale = 0.03F;
                compare_with_reference(call);
            }
    for (const uint32_t slots : {1U, 2U, 8U}) // the two slots of a pair can be in two blocks
        compare_with_reference(
            {cache_of({77, 130}, slots, KEEL_DTYPE_Q8_0, KEEL_DTYPE_BF16), 5, 4});
}
