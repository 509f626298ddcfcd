// What the conformance program cannot know about this backend's attention: how it cuts the work, and what must not depend on that.
#include "conformance/rope_cases.hpp"
#include "conformance/suite.hpp"
#include "support/instruction_sets.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace keel;
using namespace keel::conformance;

namespace {

const Library &cpu_library() {
    static const Library library{std::string(KEEL_CPU_PLUGIN)};
    return library;
}

// A plugin, and an `isa` that it runs on this machine.
struct Variant {
    const Library *library;
    std::string isa;       // what params.isa says
    std::string word, f32; // what the kernels call themselves, and those with products in f32
    bool emulated = false;

    bool rounds() const {
        return isa == "avx512bf16" || isa == "amx";
    }                                           // products in bf16, where compute is fast
    bool is_f32() const { return word == f32; } // no other set's attention
};

// The set whose f32 attention a set has: one form on ARM64 and one with AVX-512, since nothing is multiplied by bytes.
std::string attention_of(const std::string &isa) {
    if (isa == "dotprod" || isa == "fp16" || isa == "i8mm") return "neon";
    return isa == "vnni" || isa == "avx512bf16" || isa == "amx" ? "avx512" : isa;
}

// The instruction sets of this machine, and AMX emulated: what walks over pairs of tiles is in no other set.
const std::vector<Variant> &variants() {
    static const std::vector<Variant> found = [] {
        std::vector<Variant> all;
        const auto add = [&](const Library &library, const std::string &isa, const std::string &suffix) {
            try {
                Side side(library, {{"isa", isa}});
                all.push_back({&library, isa, isa + suffix, attention_of(isa) + suffix, !suffix.empty()});
            } catch (const Unusable &) { // not on this machine
            }
        };
        for (const char *isa : test::isa_names)
            if (test::is_isa_wanted(isa)) add(cpu_library(), isa, "");
        if (!std::string(KEEL_CPU_EMULATED).empty()) {
            static const Library emulated{std::string(KEEL_CPU_EMULATED)};
            add(emulated, "amx", "-emulated");
        }
        return all;
    }();
    return found;
}

// One call of attention and the places of what it works on.
struct Call {
    Scene scene;
    int cache = none, q = none, out = none, lse = none, scores = none, positions = none;
    uint64_t features = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_LSE | KEEL_ATTENTION_SCORES;
    int64_t window = 0;
    float scale = 0.125F;

    Call(const CacheShape &shape, int64_t m, int64_t group, uint64_t more_features = 0) {
        Rng rng(7);
        features |= more_features;
        const auto kv_heads = static_cast<int64_t>(shape.lengths.size());
        cache = add_cache(scene, rng, shape);
        q = scene.add(random_tensor(rng, KEEL_DTYPE_F32, {m, kv_heads * group, shape.head_dim}));
        out = scene.add(blank(KEEL_DTYPE_F32, {m, kv_heads * group, shape.v_head_dim}));
        lse = scene.add(blank(KEEL_DTYPE_F32, {m, kv_heads * group}));
        scores = scene.add(blank(KEEL_DTYPE_F32, {kv_heads, scene.caches[cache].max_length}));
        std::vector<int32_t> at;
        for (int64_t i = 0; i < m; ++i)
            at.push_back(shape.lengths[0] - static_cast<int32_t>(m - i));
        positions = scene.add(integer_tensor({m}, at));
    }

    keel_status run(Stage &stage) const {
        keel_scores reduced = {KEEL_HEADER(keel_scores), stage.tensor(scores), 2,
                               KEEL_REDUCE_SUM,          KEEL_REDUCE_MEAN,     0};
        keel_attention_args a = {};
        a.h = KEEL_HEADER(keel_attention_args);
        a.features = features;
        a.q = stage.tensor(q);
        a.kv = stage.cache(cache);
        a.out = stage.tensor(out);
        a.q_positions = stage.tensor(positions);
        a.lse = stage.tensor(lse);
        a.scores = &reduced;
        a.scale = scale;
        a.window = window;
        return stage.run(KEEL_OP_ATTENTION, a);
    }

    std::vector<double> values(Stage &stage, int place) const {
        return scene.tensors[place].values_of(stage.read(place));
    }
};

CacheShape cache_of(std::vector<int32_t> lengths, uint32_t block_slots, keel_dtype k, keel_dtype v) {
    CacheShape shape;
    shape.lengths = std::move(lengths);
    shape.block_slots = block_slots;
    shape.k_dtype = k;
    shape.v_dtype = v;
    return shape;
}

// Largest |y - reference| / (1 + |reference|); values that are not finite must be so in both.
double distance(const std::vector<double> &y, const std::vector<double> &reference) {
    REQUIRE(y.size() == reference.size());
    double worst = 0;
    for (size_t i = 0; i < y.size(); ++i) {
        if (!std::isfinite(reference[i]) || !std::isfinite(y[i])) {
            if (std::isfinite(reference[i]) != std::isfinite(y[i])) return INFINITY;
            continue;
        }
        worst = std::max(worst, std::fabs(y[i] - reference[i]) / (1 + std::fabs(reference[i])));
    }
    return worst;
}

void compare_with_reference(const Call &call) {
    static const Library reference("reference");
    Side oracle(reference, {}, 1);
    Stage want(oracle, call.scene, {});
    REQUIRE(call.run(want) == KEEL_OK);
    for (const Variant &v : variants()) {
        if (!v.is_f32() && !v.rounds()) continue;
        INFO(v.word);
        Side side(*v.library, {{"isa", v.isa}});
        Stage got(side, call.scene, {.planned = true});
        REQUIRE(call.run(got) == KEEL_OK);
        const double bound = got.kernel().find(" fast") != std::string::npos ? 8e-3 : 1e-5;
        CHECK(distance(call.values(got, call.out), call.values(want, call.out)) < bound);
        CHECK(distance(call.values(got, call.lse), call.values(want, call.lse)) < bound);
        CHECK(distance(call.values(got, call.scores), call.values(want, call.scores)) < bound);
    }
}

// Puts a value into every element of one slot of K or V.
void poison_slot(Call &call, int tensor, int64_t head, int64_t slot, float value) {
    const CacheSpec &spec = call.scene.caches[call.cache];
    Tensor &t = call.scene.tensors[tensor];
    const Tensor &table = call.scene.tensors[spec.table];
    const int32_t block =
        table.integers_of(table.image)[static_cast<size_t>(head * table.shape[1] + slot / spec.block_slots)];
    std::vector<double> values = t.values();
    const int64_t row = block * int64_t{spec.block_slots} + slot % spec.block_slots;
    for (int64_t d = 0; d < t.row_length(); ++d)
        values[static_cast<size_t>(row * t.row_length() + d)] = static_cast<double>(value);
    t.set({values.begin(), values.end()});
}

} // namespace

TEST_CASE("a long cache cut into parts gives what one pass gives") {
    // 2 x 512 slots is the shortest cache that is cut; heads of different lengths are cut differently
    for (const int32_t length : {1023, 1024, 1025, 1600, 2300}) {
        INFO(length);
        compare_with_reference({cache_of({length, 700, 3}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 1, 2});
        compare_with_reference({cache_of({length}, 16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0), 3, 8});
    }
    compare_with_reference({cache_of({1500}, 256, KEEL_DTYPE_BF16, KEEL_DTYPE_F32), 20, 9});
}

TEST_CASE("many query rows that share a chunk of slots get what the reference gives") {
    // 32 tiles of 96 rows and more: none is cut into parts, and they grow wide
    compare_with_reference({cache_of({700, 230}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0), 200, 8});
    CacheShape shape = cache_of({600, 512}, 16, KEEL_DTYPE_Q4_0, KEEL_DTYPE_BF16);
    shape.head_dim = 96, shape.v_head_dim = 48;
    compare_with_reference({shape, 230, 7});
    Call windowed(cache_of({610, 610}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 200, 8, KEEL_ATTENTION_WINDOW);
    Tensor &t = windowed.scene.tensors[windowed.scene.caches[windowed.cache].positions];
    std::vector<int32_t> positions;
    for (int64_t j = 0; j < t.elements(); ++j)
        positions.push_back(static_cast<int32_t>(j % 610));
    t.set_integers(positions);
    windowed.window = 100;
    compare_with_reference(windowed);
    Call infinite(cache_of({640, 640}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 200, 8);
    poison_slot(infinite, infinite.scene.caches[infinite.cache].v, 0, 560, INFINITY);
    compare_with_reference(infinite);
}

TEST_CASE("logits that rise from tile to tile of slots move the maximum of a row along") {
    for (const float rise : {0.75F, 2.0F, -2.0F}) { // 3, 8 and -8: below what moves it, above, never
        Call call(cache_of({650, 650}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 200, 8);
        Tensor &q = call.scene.tensors[call.q];
        q.set(std::vector<float>(static_cast<size_t>(q.elements()), 0.5F)); // products of bf16 are exact
        for (int64_t head = 0; head < 2; ++head)
            for (int64_t slot = 0; slot < 650; ++slot)
                poison_slot(call, call.scene.caches[call.cache].k, head, slot,
                            rise * static_cast<float>(slot / 64) + 0.25F * static_cast<float>(slot % 3));
        compare_with_reference(call);
    }
}

TEST_CASE("parts that a model's window hides count nothing") {
    Call call(cache_of({2300}, 64, KEEL_DTYPE_F32, KEEL_DTYPE_F16), 2, 4, KEEL_ATTENTION_WINDOW);
    std::vector<int32_t> positions;
    Tensor &t = call.scene.tensors[call.scene.caches[call.cache].positions];
    for (int64_t j = 0; j < t.elements(); ++j)
        positions.push_back(static_cast<int32_t>(j));
    t.set_integers(positions);
    for (const int64_t window : {1, 64, 700}) {
        call.window = window;
        compare_with_reference(call);
    }
}

namespace {

// The same call by each number of workers, which must write the same bytes.
void compare_threads(const Library &library, const Params &params, const Call &call) {
    std::vector<std::vector<uint8_t>> first;
    for (const uint32_t threads : {1U, 2U, 5U, 8U}) {
        INFO(threads << " threads");
        Params all = params;
        all["threads"] = std::to_string(threads);
        Side side(library, all, threads);
        Stage stage(side, call.scene, {});
        REQUIRE(call.run(stage) == KEEL_OK);
        std::vector<std::vector<uint8_t>> images;
        for (const int place : {call.out, call.lse, call.scores})
            images.push_back(stage.read(place));
        if (first.empty()) first = images;
        CHECK(images == first);
    }
}

} // namespace

TEST_CASE("the result does not depend on the number of threads, to the bit") {
    for (const int64_t m : {1, 3, 70, 400}) { // the last in wide tiles of rows
        INFO(m << " queries");
        compare_threads(cpu_library(), {},
                        {cache_of({2100, 900}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0), m, 4});
    }
}

TEST_CASE("few rows that the number of threads leaves to a last task take the way of the others") {
    for (const Variant &v : variants()) {
        if (!v.rounds()) continue;
        INFO(v.word);
        // one, two and eight rows beyond a tile: fewer than are rounded, than keys are turned for, than take tiles of slots in pairs
        for (const int64_t m : {97, 98, 104}) {
            INFO(m << " queries");
            CacheShape shape = cache_of(std::vector<int32_t>(32, 150), 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16);
            shape.head_dim = shape.v_head_dim = 32;
            compare_threads(*v.library, {{"isa", v.isa}}, {shape, m, 1});
        }
        CacheShape shape = cache_of({640, 450}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0);
        shape.head_dim = shape.v_head_dim = 32;
        compare_threads(*v.library, {{"isa", v.isa}}, {shape, 389, 4});
    }
}

TEST_CASE("an infinity in a value reaches the queries that see it, and no other") {
    for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16})
        for (const int64_t group : {1, 12}) { // few rows and many take different ways
            Call call(cache_of({100}, 64, dtype, dtype), 6, group);
            poison_slot(call, call.scene.caches[call.cache].v, 0, 97, INFINITY);
            poison_slot(call, call.scene.caches[call.cache].k, 0, 98, NAN);
            compare_with_reference(call);
            Side side(cpu_library(), {});
            Stage stage(side, call.scene, {});
            REQUIRE(call.run(stage) == KEEL_OK);
            const std::vector<double> out = call.values(stage, call.out);
            const size_t query = static_cast<size_t>(group) * 64;
            CHECK(std::isfinite(out[2 * query])); // sees slots up to 96
            CHECK_FALSE(std::isfinite(out[3 * query]));
            CHECK(std::isnan(out[4 * query])); // and the key that is no number
        }
}

TEST_CASE("a block table that leads out of the arena is refused before anything is written") {
    for (const int32_t wrong : {-1, 1 << 30}) {
        Call call(cache_of({200}, 64, KEEL_DTYPE_F16, KEEL_DTYPE_F16), 1, 2);
        Tensor &table = call.scene.tensors[call.scene.caches[call.cache].table];
        std::vector<int32_t> blocks = table.integers_of(table.image);
        blocks[3] = wrong; // of slots 192..199
        table.set_integers(blocks);
        Side side(cpu_library(), {});
        Stage stage(side, call.scene, {});
        CHECK(call.run(stage) == KEEL_E_INVALID_ARG);
        CHECK(side.error().find("block table of head 0, entry 3") != std::string::npos);
        CHECK(stage.read(call.out) == call.scene.tensors[call.out].image);
    }
}

TEST_CASE("keys are not rotated again in what is no range of slots") {
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
        CHECK(side.error().find("are no range") != std::string::npos);
        CHECK(stage.read(scene.caches[cache].k) == scene.tensors[scene.caches[cache].k].image);
    }
}

TEST_CASE("a plan names the way that attention takes, the dtypes and the instruction set") {
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
            const Call wide(cache_of({80}, 64, KEEL_DTYPE_F32, KEEL_DTYPE_F16), 1, 4); // f32 is not rounded
            Stage exact(side, wide.scene, {.planned = true});
            REQUIRE(wide.run(exact) == KEEL_OK);
            CHECK(exact.kernel() == "attention decode f32/f16 " + v.f32);
        }
    }
}

TEST_CASE("all group sizes, head sizes and ends of a tile give what the reference gives") {
    for (const int64_t group : {1, 2, 3, 4, 5, 7, 8, 9, 16, 40})
        for (const int64_t m : {1, 2, 13})
            for (const int32_t length : {m == 13 ? 13 : 5, 17, 63, 64, 66, 129}) {
                INFO(group << " heads a group, " << m << " queries, " << length << " slots");
                CacheShape shape = cache_of({length}, 16, KEEL_DTYPE_F16, KEEL_DTYPE_F16);
                shape.head_dim = group % 2 == 0 ? 64 : 40;
                shape.v_head_dim = group % 4 == 0 ? 64 : 24;
                compare_with_reference({shape, m, group});
            }
    for (const uint32_t slots : {1U, 2U, 8U}) // pairs of slots may lie in two blocks
        compare_with_reference({cache_of({77, 130}, slots, KEEL_DTYPE_Q8_0, KEEL_DTYPE_BF16), 5, 4});
}
