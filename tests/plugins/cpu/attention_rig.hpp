// Calls the CPU plugin's attention with each instruction set and several numbers of workers.
#pragma once

#include "conformance/rope_cases.hpp"
#include "conformance/suite.hpp"
#include "support/instruction_sets.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <utility>

namespace keel::test {

using namespace keel::conformance;

inline const Library &cpu_library() {
    static const Library library{std::string(KEEL_CPU_PLUGIN)};
    return library;
}

// A plugin, and an instruction set of this plugin that this machine can run.
struct Variant {
    const Library *library;
    std::string isa;       // value of the parameter `isa`
    std::string word, f32; // names that the kernels report: with `fast`, and with products in f32
    bool emulated = false;

    bool rounds() const {
        return isa == "avx512bf16" || isa == "amx";
    } // with compute: fast, products are in bf16
    // true: no other instruction set has these attention kernels
    bool is_f32() const { return word == f32; }
};

// Returns the instruction set whose f32 attention kernels a set uses. There is one for ARM64 and
// one for AVX-512 and above, because attention multiplies no bytes.
inline std::string attention_of(const std::string &isa) {
    if (isa == "dotprod" || isa == "fp16" || isa == "i8mm") return "neon";
    return isa == "vnni" || isa == "avx512bf16" || isa == "amx" ? "avx512" : isa;
}

// Returns the instruction sets of this machine, and emulated AMX. Only AMX has kernels that use
// tiles in pairs.
inline const std::vector<Variant> &variants() {
    static const std::vector<Variant> found = [] {
        std::vector<Variant> all;
        const auto add = [&](const Library &library, const std::string &isa,
                             const std::string &suffix) {
            try {
                Side side(library, {{"isa", isa}});
                all.push_back(
                    {&library, isa, isa + suffix, attention_of(isa) + suffix, !suffix.empty()});
            } catch (const Unusable &) { // this machine does not have the instruction set
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

// One call of attention, and the indices of its tensors.
struct Call {
    Scene scene;
    int cache = none, q = none, out = none, lse = none, scores = none, positions = none;
    uint64_t features = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_LSE | KEEL_ATTENTION_SCORES;
    int64_t window = 0;
    // number of queries that contribute to the scores, the last ones; 0: all
    uint32_t counting = 0;
    keel_reduce queries = KEEL_REDUCE_SUM, group = KEEL_REDUCE_MEAN;
    float scale = 0.125F;

    Call(const CacheShape &shape, int64_t m, int64_t heads_each, uint64_t more_features = 0) {
        Rng rng(7);
        features |= more_features;
        const auto kv_heads = static_cast<int64_t>(shape.lengths.size());
        cache = add_cache(scene, rng, shape);
        q = scene.add(
            random_tensor(rng, KEEL_DTYPE_F32, {m, kv_heads * heads_each, shape.head_dim}));
        out = scene.add(blank(KEEL_DTYPE_F32, {m, kv_heads * heads_each, shape.v_head_dim}));
        lse = scene.add(blank(KEEL_DTYPE_F32, {m, kv_heads * heads_each}));
        score_by(KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, 0);
        std::vector<int32_t> at;
        for (int64_t i = 0; i < m; ++i)
            at.push_back(shape.lengths[0] - static_cast<int32_t>(m - i));
        positions = scene.add(integer_tensor({m}, at));
    }

    // Adds scores to the call. Each head that is not reduced has one row of scores.
    void score_by(keel_reduce of_queries, keel_reduce of_group, uint32_t last) {
        queries = of_queries, group = of_group, counting = last;
        const int64_t kv_heads = scene.tensors[scene.caches[cache].lengths].shape[0],
                      heads = scene.tensors[q].shape[1];
        scores = scene.add(blank(KEEL_DTYPE_F32, {of_group == KEEL_REDUCE_NONE ? heads : kv_heads,
                                                  scene.caches[cache].max_length}));
    }

    keel_status run(Stage &stage) const {
        keel_scores reduced = {
            KEEL_HEADER(keel_scores), stage.tensor(scores), counting, queries, group, 0};
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

inline CacheShape cache_of(std::vector<int32_t> lengths, uint32_t block_slots, keel_dtype k,
                           keel_dtype v) {
    CacheShape shape;
    shape.lengths = std::move(lengths);
    shape.block_slots = block_slots;
    shape.k_dtype = k;
    shape.v_dtype = v;
    return shape;
}

// Returns the largest |y - reference| / (1 + |reference|). Values that are not finite must be the
// same in both.
inline double distance(const std::vector<double> &y, const std::vector<double> &reference) {
    REQUIRE(y.size() == reference.size());
    double worst = 0;
    for (size_t i = 0; i < y.size(); ++i) {
        if (!std::isfinite(reference[i]) || !std::isfinite(y[i])) {
            const bool both_nan = std::isnan(reference[i]) && std::isnan(y[i]);
            if (!both_nan && reference[i] != y[i]) return INFINITY;
            continue;
        }
        worst = std::max(worst, std::fabs(y[i] - reference[i]) / (1 + std::fabs(reference[i])));
    }
    return worst;
}

inline void compare_with_reference(const Call &call) {
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

// Writes value(head, slot) to every element of slots from..to-1 of heads first..second-1, in K or
// V.
template <class F>
void fill_slots(Call &call, int tensor, std::pair<int64_t, int64_t> heads, int64_t from, int64_t to,
                F &&value) {
    const CacheSpec &spec = call.scene.caches[call.cache];
    Tensor &t = call.scene.tensors[tensor];
    const Tensor &table = call.scene.tensors[spec.table];
    const std::vector<int32_t> blocks = table.integers_of(table.image);
    std::vector<double> values = t.values();
    for (int64_t head = heads.first; head < heads.second; ++head)
        for (int64_t slot = from; slot < to; ++slot) {
            const int32_t block =
                blocks[static_cast<size_t>(head * table.shape[1] + slot / spec.block_slots)];
            const int64_t row = block * int64_t{spec.block_slots} + slot % spec.block_slots;
            for (int64_t d = 0; d < t.row_length(); ++d)
                values[static_cast<size_t>(row * t.row_length() + d)] =
                    static_cast<double>(value(head, slot));
        }
    t.set({values.begin(), values.end()});
}

// Writes a value to every element of one slot of K or V.
inline void poison_slot(Call &call, int tensor, int64_t head, int64_t slot, float value) {
    fill_slots(call, tensor, {head, head + 1}, slot, slot + 1,
               [=](int64_t, int64_t) { return value; });
}

// Makes the same call with each number of workers. All calls must write the same bytes.
inline void compare_threads(const Library &library, const Params &params, const Call &call) {
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

} // namespace keel::test
