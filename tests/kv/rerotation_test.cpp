#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

std::vector<double> frequencies() {
    std::vector<double> f;
    for (int i = 0; i < 16; ++i) f.push_back(std::pow(10000.0, -i / 16.0));
    return f;
}

KvShape rerotation_shape(keel_dtype dtype) { return kv_shape(64, dtype, 2); }

Script window_script() {
    Script script;
    script.needs.granularity = KEEL_KEEP_TOKEN;
    script.needs.output = KEEL_OUTPUT_KEEP;
    script.needs.flags = KEEL_POLICY_BLOCKWISE;
    script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
        // the core evicts the oldest of these
        for (int32_t s = 0; s < in.lengths[0]; ++s) out.keep[s] = s;
        out.keep_count[0] = in.lengths[0];
        return KEEL_OK;
    };
    return script;
}

struct Run {
    Run(const std::string &device, const KvShape &shape, Script &script, CacheConfig config)
        : rig(device, shape, frequencies()) {
        config.policy = scripted(script);
        config.rope_frequencies = frequencies();
        plan = std::make_unique<PolicySetup>(rig.executor(), shape, rig.executor().device().host(),
                                             config);
        manager = std::make_unique<CacheManager>(*plan, rig.executor().placement());
    }
    void step(int64_t n, StepKind kind) {
        feed(*manager, n);
        manager->after_step(kind);
    }
    void feed(CacheManager &to, int64_t n) {
        const int64_t first = to.tokens_seen();
        const auto next = to.next_positions(n);
        const std::vector<int32_t> positions(next.begin(), next.end());
        std::vector<int64_t> tokens(static_cast<size_t>(n));
        std::iota(tokens.begin(), tokens.end(), first);
        to.append(n);
        rig.write(to.cache(), tokens, positions);
    }

    Rig rig;
    std::unique_ptr<PolicySetup> plan;
    std::unique_ptr<CacheManager> manager;
};

CacheConfig window_config(KvPositions positions) {
    CacheConfig config;
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 24;
    config.slack = 3;
    config.protect_prefix = 4;
    config.positions = positions;
    config.trained_context = 40;
    return config;
}

// Checks that the cache has tokens 0..3 and the newest tokens, and that their positions are their
// slot numbers.
void expect_slots(Run &run, CacheManager &manager, double bound) {
    const int64_t length = manager.cache().max_length(), seen = manager.tokens_seen();
    std::vector<int64_t> tokens(static_cast<size_t>(length)), slots(static_cast<size_t>(length));
    std::iota(slots.begin(), slots.end(), 0);
    for (int64_t j = 0; j < length; ++j)
        tokens[static_cast<size_t>(j)] = j < 4 ? j : seen - (length - j);
    // The query for the cache has the position `seen`. The query for the independent computation
    // has the position of its slot.
    const auto query = run.rig.tokens().query(1, seen);
    const auto slot_query = run.rig.tokens().query(1, length);
    for (uint32_t l = 0; l < 2; ++l) {
        const auto expected = run.rig.expected(l, slot_query, {tokens, tokens}, {slots, slots});
        CHECK(largest_difference(run.rig.attention(manager.cache(), l, query), expected) < bound);
        CHECK(run.rig.device_positions(manager.cache(), l, 1).front() == seen - length);
    }
}

} // namespace

TEST_CASE("After re-rotation, attention equals attention computed with positions equal to slots") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = window_script();
        Run run(device, rerotation_shape(KEEL_DTYPE_F32), script,
                window_config(KvPositions::rerotated));
        run.step(20, StepKind::prefill_chunk);
        run.step(20, StepKind::prefill_end);
        expect_slots(run, *run.manager, 1e-5);
        for (int i = 0; i < 50; ++i) run.step(1, StepKind::decode);
        run.manager->evict();
        expect_slots(run, *run.manager, 1e-5);
    }
}

TEST_CASE(
    "Rounding errors of re-rotated keys do not accumulate: a thousand evictions are like one") {
    for (const std::string &device : kv_devices()) {
        if (device == "copying") continue;
        for (const keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
            INFO(device << ' ' << keel_dtype_name(dtype));
            Script script = window_script();
            CacheConfig config = window_config(KvPositions::rerotated);
            config.slack = 0;
            config.budget = 8;
            KvShape shape = rerotation_shape(dtype);
            shape.layers = 1;
            Run run(device, shape, script, config);
            // Returns the error of the prefix's keys at their current positions.
            const auto error = [&] {
                const auto keys = run.rig.keys(run.manager->cache(), 0);
                const auto positions = run.manager->cache().positions(0, 1);
                const auto stride = static_cast<size_t>(run.manager->cache().max_length());
                double sum = 0;
                for (size_t j = 0; j < 4; ++j) {
                    const auto truth =
                        run.rig.tokens().key(static_cast<int64_t>(j), 0, 1, positions[j]);
                    for (size_t d = 0; d < 32; ++d)
                        sum += std::pow(double{keys[(stride + j) * 32 + d]} - double{truth[d]}, 2);
                }
                return std::sqrt(sum);
            };
            run.step(9, StepKind::prefill_end);
            CHECK(run.manager->evictions() == 1);
            double early = 0, late = 0, sink = 0;
            for (int i = 0; i < 1000; ++i) {
                run.step(1, StepKind::decode);
                (i < 20 ? early : i >= 980 ? late : sink) += error() / 20;
            }
            CHECK(run.manager->evictions() == 1001);
            CHECK(late < 1.25 * early);
            CHECK(early < (dtype == KEEL_DTYPE_Q4_0 ? 1.5 : 0.1));
        }
    }
}

TEST_CASE("Automatic positions are absolute within the trained context and contiguous beyond it") {
    Script script = window_script();
    Run run("reference", rerotation_shape(KEEL_DTYPE_F32), script,
            window_config(KvPositions::automatic));
    run.step(30, StepKind::prefill_end);
    CHECK(run.manager->cache().max_length() == 24);
    CHECK(run.manager->cache().positions(0, 0)[3] == 3); // 30 + 4 is within 40
    CHECK(run.manager->cache().positions(0, 0)[4] == 10);
    for (int i = 0; i < 200; ++i) {
        run.step(1, StepKind::decode);
        REQUIRE(run.manager->tokens_seen() - run.manager->cache().positions(0, 0)[0] <= 40);
    }
    CHECK(run.manager->cache().positions(0, 0)[0] > 3);
}

TEST_CASE("Automatic positions are decided for all steps before the next eviction") {
    // Nothing is evicted during generation, so all free slots can be used.
    Script once = window_script();
    once.needs.flags = KEEL_POLICY_PREFILL_ONLY;
    CacheConfig config = window_config(KvPositions::automatic);
    config.at_budget = false;
    Run run("reference", rerotation_shape(KEEL_DTYPE_F32), once, config);
    run.step(30, StepKind::prefill_end);
    CHECK(run.manager->cache().positions(0, 0)[3] > 3);
    for (int i = 0; i < 16; ++i) {
        run.step(1, StepKind::decode);
        REQUIRE(run.manager->tokens_seen() - run.manager->cache().positions(0, 0)[0] <= 40);
    }
    // Evicts every n tokens.
    Script often = window_script();
    CacheConfig every = window_config(KvPositions::automatic);
    every.at_budget = false;
    every.every_n = 12;
    Run run_often("reference", rerotation_shape(KEEL_DTYPE_F32), often, every);
    run_often.step(30, StepKind::prefill_end);
    for (int i = 0; i < 100; ++i) {
        run_often.step(1, StepKind::decode);
        REQUIRE(run_often.manager->tokens_seen() - run_often.manager->cache().positions(0, 0)[0] <=
                40);
    }
}

TEST_CASE("Positions of scattered slots become contiguous too") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = window_script();
        script.needs.granularity = KEEL_KEEP_HEAD_RAGGED;
        script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                int32_t n = 0;
                for (int32_t s = 0; s < in.lengths[h]; s += 2 + static_cast<int32_t>(h))
                    out.keep[h * in.stride + n++] = s;
                out.keep_count[h] = n;
            }
            return KEEL_OK;
        };
        Run run(device, rerotation_shape(KEEL_DTYPE_F32), script,
                window_config(KvPositions::rerotated));
        run.step(40, StepKind::prefill_end);
        const auto query = run.rig.tokens().query(1, 40);
        std::vector<std::vector<int64_t>> tokens(2), slots(2);
        for (int64_t h = 0; h < 2; ++h) {
            for (int64_t t = 0; t < 40; ++t) {
                if (t < 4 || t % (2 + h) == 0) tokens[static_cast<size_t>(h)].push_back(t);
            }
            // Distances from the newest key follow the slots. The newest key keeps its position.
            const auto n = std::ssize(tokens[static_cast<size_t>(h)]);
            for (int64_t j = 0; j < n; ++j)
                slots[static_cast<size_t>(h)].push_back(tokens[static_cast<size_t>(h)].back() -
                                                        (n - 1 - j));
        }
        for (uint32_t l = 0; l < 2; ++l)
            CHECK(largest_difference(run.rig.attention(run.manager->cache(), l, query),
                                     run.rig.expected(l, query, tokens, slots)) < 1e-5);
    }
}

namespace {

// A policy that keeps the slots that it kept before and thins out the others. Heads have different
// lengths, and keys stay long and move often.
Script thinning(int64_t *newest_kept) {
    Script script = window_script();
    script.needs.granularity = KEEL_KEEP_HEAD_RAGGED;
    script.decide = [newest_kept](const keel_policy_input &in, keel_policy_decision &out) {
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            int32_t n = 0;
            for (int32_t s = 0; s < in.lengths[h]; ++s) {
                const bool old = s < 10 + static_cast<int32_t>(h);
                if (old || s % 2 == 0 || s + 3 > in.lengths[h]) out.keep[h * in.stride + n++] = s;
            }
            while (n > in.budgets[h]) { // evicts the newest slots of the middle
                for (int32_t j = 10 + static_cast<int32_t>(h); j + 1 < n; ++j)
                    out.keep[h * in.stride + j] = out.keep[h * in.stride + j + 1];
                --n;
            }
            out.keep_count[h] = n;
        }
        ++*newest_kept;
        return KEEL_OK;
    };
    return script;
}

// Returns the error of the first keys of a head, which belong to tokens 0, 1, 2, ..., at their
// current positions.
double error_of_first(Run &run, CacheManager &manager, uint32_t head, size_t n) {
    const auto keys = run.rig.keys(manager.cache(), 1);
    const auto positions = manager.cache().positions(1, head);
    const auto stride = static_cast<size_t>(manager.cache().max_length(1));
    double sum = 0;
    for (size_t j = 0; j < n; ++j) {
        const auto truth = run.rig.tokens().key(static_cast<int64_t>(j), 1, head, positions[j]);
        for (size_t d = 0; d < 32; ++d)
            sum += std::pow(double{keys[(head * stride + j) * 32 + d]} - double{truth[d]}, 2);
    }
    return std::sqrt(sum);
}

} // namespace

TEST_CASE(
    "Scattered quantized keys are rotated from copies, so rounding errors do not accumulate") {
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype : {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
            INFO(device << ' ' << keel_dtype_name(dtype));
            int64_t asked = 0;
            Script script = thinning(&asked);
            CacheConfig config = window_config(KvPositions::rerotated);
            config.protect_prefix = 0;
            config.slack = 1;
            Run run(device, rerotation_shape(dtype), script, config);
            run.step(40, StepKind::prefill_end);
            // A rotated key has the rounding error of its first write and the error of its last
            // rotation.
            const double once = error_of_first(run, *run.manager, 1, 10);
            double largest = 0;
            for (int i = 0; i < 300; ++i) {
                run.step(1, StepKind::decode);
                for (uint32_t h = 0; h < 2; ++h)
                    largest = std::max(largest, error_of_first(run, *run.manager, h, 10));
            }
            CHECK(run.manager->evictions() > 40);
            CHECK(run.manager->cache().positions(1, 0)[0] > 250);
            CHECK(largest < 1.7 * once);

            // Forks and loaded caches continue with their own copies. Truncated caches do too.
            Memory saved;
            run.manager->save(saved);
            auto fork = run.manager->fork();
            for (int i = 0; i < 40; ++i) {
                run.feed(*fork, 1);
                fork->after_step(StepKind::decode);
            }
            CHECK(error_of_first(run, *fork, 1, 10) < 1.7 * once);
            for (int i = 0; i < 40; ++i) run.step(1, StepKind::decode);
            const auto keys = run.rig.keys(run.manager->cache(), 1);
            CHECK(run.rig.keys(fork->cache(), 1) == keys);
            fork.reset();
            StateReader in(saved.bytes, "state");
            run.manager->load(in);
            CHECK(in.left() == 0);
            for (int i = 0; i < 40; ++i) run.step(1, StepKind::decode);
            CHECK(run.rig.keys(run.manager->cache(), 1) == keys);
            run.manager->reset();
            CHECK(run.manager->cache().arena().bytes_in_use() == 0);
        }
    }
}

TEST_CASE("Copies of quantized keys count as cache memory and never exceed kv.max_mib") {
    int64_t asked = 0;
    Script script = thinning(&asked);
    CacheConfig config = window_config(KvPositions::rerotated);
    config.protect_prefix = 0;
    KvShape shape = rerotation_shape(KEEL_DTYPE_Q8_0);
    Run free("reference", shape, script, config);
    free.step(40, StepKind::prefill_end);
    KvArena &arena = free.manager->cache().arena();
    CHECK(arena.bytes_in_use() > free.manager->cache().bytes_in_use());
    CHECK(arena.bytes_in_use() <= free.manager->cache().bytes_in_use() + 2 * 2 * 24 * 34);
    // A copy takes half the memory of a slot. So memory for six blocks holds four blocks with their
    // copies.
    shape.max_bytes = 2 * 2 * 6 * shape.block_bytes();
    Run capped("reference", shape, script, config);
    capped.step(40, StepKind::prefill_end);
    for (int i = 0; i < 60; ++i) {
        capped.step(1, StepKind::decode);
        CHECK(capped.manager->cache().arena().peak_bytes() <= shape.max_bytes);
    }
    CHECK(capped.manager->evictions() > 5);
    shape.max_bytes = 2 * 2 * 5 * shape.block_bytes(); // without copies this would be enough
    CHECK_THAT(error_text([&] { Run("reference", shape, script, config); }, ErrorKind::input),
               Contains("policy.budget.tokens") && Contains("kv.max_mib"));
}

TEST_CASE("A fork and a truncated cache re-rotate their own prefix") {
    Script script = window_script();
    Run run("reference", rerotation_shape(KEEL_DTYPE_F32), script,
            window_config(KvPositions::rerotated));
    run.step(40, StepKind::prefill_end);
    auto fork = run.manager->fork();
    for (int i = 0; i < 9; ++i) {
        run.feed(*fork, 1);
        fork->after_step(StepKind::decode);
    }
    fork->evict();
    expect_slots(run, *fork, 1e-5);
    expect_slots(run, *run.manager, 1e-5);
    run.manager->reset();
    run.step(40, StepKind::prefill_end);
    expect_slots(run, *run.manager, 1e-5);
}
