// Tests of the bytes of a sequence, its cache plus the policy's data: the current bytes, the peak,
// and the bytes before evictions.
#include "kv/manager_run.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

CacheConfig held_config(Script &script, int64_t slots) {
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = static_cast<double>(slots);
    return config;
}

// Returns the bytes of the cache if each of the 2 heads of the 2 layers holds `slots` slots.
uint64_t cache_bytes(const KvShape &shape, uint64_t slots) {
    const auto block = static_cast<uint64_t>(shape.block_slots);
    return 2 * 2 * ((slots + block - 1) / block) * shape.block_bytes();
}

} // namespace

TEST_CASE("Freed bytes are the difference of held bytes before and after the eviction, with the "
          "policy's data") {
    Script script = newest_are_best();
    const KvShape shape = kv_shape(128, KEEL_DTYPE_F32);
    ManagerRun run("reference", shape, held_config(script, 32));
    CacheManager &manager = *run.manager;
    CHECK(manager.freed_bytes() == 0);
    run.step(100, StepKind::prefill_end);
    REQUIRE(manager.cache().max_length() == 32);
    const uint64_t before = cache_bytes(shape, 100);
    CHECK(manager.held_bytes() == manager.bytes_in_use() + manager.policy_bytes());
    CHECK(manager.freed_bytes() == before - manager.held_bytes());
    CHECK(manager.freed_bytes() == manager.evicted_bytes());
    // During the decision, memory held its arrays in addition to the whole cache.
    CHECK(manager.policy_peak_bytes() > 0);
    CHECK(manager.held_peak_bytes() == before + manager.policy_peak_bytes());

    // Blocks are freed and used again. The sum of freed bytes is large, but the sequence holds as
    // many bytes as before.
    for (int i = 0; i < 300; ++i) run.step(1, StepKind::decode);
    REQUIRE(manager.evictions() > 20);
    CHECK(manager.evicted_bytes() > before);
    CHECK(manager.freed_bytes() == before - manager.held_bytes());
    CHECK(manager.held_peak_bytes() == before + manager.policy_peak_bytes());

    manager.reset();
    CHECK(manager.freed_bytes() == 0);
    CHECK(manager.held_peak_bytes() == manager.held_bytes());
}

TEST_CASE("Evictions that only keep the budget free the slack") {
    Script script = newest_are_best();
    const KvShape shape = kv_shape(128, KEEL_DTYPE_F32);
    CacheConfig config = held_config(script, 32);
    config.slack = 8;
    ManagerRun run("reference", shape, config);
    run.step(20, StepKind::prefill_end);
    for (int i = 0; i < 100; ++i) {
        run.step(1, StepKind::decode);
        const CacheManager &manager = *run.manager;
        CHECK(manager.freed_bytes() + manager.held_bytes() <= manager.held_peak_bytes());
        CHECK(manager.freed_bytes() <= cache_bytes(shape, 41) - cache_bytes(shape, 32));
    }
    CHECK(run.manager->evictions() > 5);
    CHECK(run.manager->evicted_bytes() > run.manager->held_peak_bytes());
}

TEST_CASE("The peak of cache plus policy is not the sum of peaks at different times") {
    Script script = newest_are_best();
    const KvShape shape = kv_shape(128, KEEL_DTYPE_F32);
    CacheConfig config = held_config(script, 32);
    config.at_prefill_end = config.at_budget = false;
    config.every_n = 1000; // the policy never acts
    ManagerRun run("reference", shape, config);
    CacheManager &manager = *run.manager;
    run.step(100, StepKind::prefill_end);
    CHECK(manager.held_peak_bytes() == cache_bytes(shape, 100));
    manager.truncate(60);
    (void)manager.evict(); // evicts about 40 slots of each head
    REQUIRE(manager.evictions() == 1);
    REQUIRE(manager.policy_peak_bytes() > 0);
    CHECK(manager.peak_bytes() == cache_bytes(shape, 100));
    CHECK(manager.held_peak_bytes() == cache_bytes(shape, 100));
    CHECK(manager.freed_bytes() == cache_bytes(shape, 40) - manager.held_bytes());
}

TEST_CASE("A sequence keeps its peaks on another device") {
    Script script = newest_are_best();
    const KvShape shape = kv_shape(128, KEEL_DTYPE_F32);
    ManagerRun from("reference", shape, held_config(script, 32));
    from.step(100, StepKind::prefill_end);
    const uint64_t peak = from.manager->held_peak_bytes(), freed = from.manager->freed_bytes();
    PolicySetup plan(from.rig.executor(), shape, from.rig.executor().device().host(),
                     held_config(script, 32));
    const auto to = from.manager->begin_move(plan, from.rig.executor().placement());
    from.manager->finish_move(*to);
    CHECK(to->held_peak_bytes() == peak);
    CHECK(to->freed_bytes() == freed);
}
