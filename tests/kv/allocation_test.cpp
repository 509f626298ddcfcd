#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"
#include "support/count_allocations.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

TEST_CASE("A decode step of a warm cache allocates no memory and writes only changed values") {
    KvShape shape;
    shape.layers = 2;
    shape.heads = shape.kv_heads = 2;
    shape.head_dim = 32;
    shape.block_slots = 8;
    shape.max_slots = 128;
    Script script;
    script.needs.granularity = KEEL_KEEP_TOKEN;
    script.needs.output = KEEL_OUTPUT_KEEP;
    Rig rig("reference", shape);
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 100;
    PolicySetup plan(rig.executor(), shape, rig.executor().device().host(), config);
    CacheManager manager(plan, KEEL_BUFFER_DEVICE);
    const auto step = [&](StepKind kind, int64_t n) {
        manager.before_append(n, kind);
        manager.next_positions(n);
        manager.append(n);
        manager.after_step(kind);
    };
    step(StepKind::prefill_end, 17);
    step(StepKind::decode, 1);
    const auto writes = rig.executor().stream().counters().writes;
    uint64_t in_steps = 0, in_block_steps = 0;
    for (int token = 18; token < 64; ++token) {
        const uint64_t before = allocations();
        step(StepKind::decode, 1);
        (token % 8 == 0 ? in_block_steps : in_steps) += allocations() - before;
    }
    CHECK(in_steps == 0);
    // One record of the committed memory for K and one for V, for each new block of a head.
    CHECK(in_block_steps <= 5 * 2 * 2 * 2);
    // The lengths are written each time. The tables are written at 24, 32, 40, 48 and 56.
    CHECK(rig.executor().stream().counters().writes - writes == 46 + 5);
}

TEST_CASE("Collecting data for a policy allocates nothing in decode steps and queues few ops") {
    KvShape shape;
    shape.layers = 2;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 32;
    shape.block_slots = 64;
    shape.max_slots = 128;
    Rig rig("reference", shape);
    Collected all;
    all.window = 40;
    all.running = Collected::Running{};
    all.stats = Collected::Stats{};
    PolicySetup plan(rig.executor(), shape, rig.executor().device().host(), {}, all);
    CacheManager manager(plan, KEEL_BUFFER_DEVICE);
    const auto step = [&](StepKind kind, int64_t n) {
        manager.before_append(n, kind);
        manager.append(n);
        StepTap *tap = manager.begin_step(n, kind);
        for (uint32_t l = 0; l < shape.layers; ++l) {
            const StepTap::Places places = tap->places(l);
            if (places.queries != nullptr) tap->after_attention(l, *places.queries);
        }
        manager.after_step(kind);
    };
    step(StepKind::decode, 1);
    const auto before = rig.executor().stream().counters();
    uint64_t allocated = 0;
    for (int token = 1; token < 8; ++token) {
        const uint64_t so_far = allocations();
        step(StepKind::decode, 1);
        allocated += allocations() - so_far;
    }
    const auto after = rig.executor().stream().counters();
    CHECK(allocated == 0);
    CHECK(after.ops == before.ops); // 8 queries are added up at a time
    CHECK(after.reads == before.reads);
    for (int token = 8; token < 90; ++token) step(StepKind::decode, 1);
    // Eleven sums in two layers. After 64 slots the running scores get more memory, which is
    // zeroed.
    CHECK(rig.executor().stream().counters().ops - after.ops == 11 * 2 + 2);
}
