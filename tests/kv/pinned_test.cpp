// Tests that pinned tokens stay, wherever their keys are in the cache.
#include "kv/manager_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape pin_shape(keel_dtype dtype = KEEL_DTYPE_F32) { return kv_shape(256, dtype, 2); }

CacheConfig budget_of(Script &script, double tokens) {
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = tokens;
    config.slack = 4;
    return config;
}

std::vector<int32_t> positions(const ManagerRun &run, uint32_t layer, uint32_t head) {
    const auto p = run.manager->cache().positions(layer, head);
    return {p.begin(), p.end()};
}

bool holds(const std::vector<int32_t> &all, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; ++i) {
        if (std::find(all.begin(), all.end(), i) == all.end()) return false;
    }
    return true;
}

std::vector<double> pin_frequencies() {
    std::vector<double> out;
    for (int i = 0; i < 16; ++i) out.push_back(std::pow(10000.0, -i / 16.0));
    return out;
}

} // namespace

TEST_CASE("Spans of the config and pins of a prompt stay in every eviction, and count against the "
          "budget") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = newest_are_best();
        CacheConfig config = budget_of(script, 40);
        config.protect_prefix = 2;
        config.pinned = {{10, 14}, {60, 63}};
        ManagerRun run(device, pin_shape(), config);
        run.manager->pin(20, 25, "generation.pin");
        CHECK(run.manager->pinned_tokens() == 12);
        run.step(30, StepKind::prefill_chunk);
        run.step(30, StepKind::prefill_chunk); // evicts between the pinned tokens
        run.step(1, StepKind::prefill_end);
        for (int i = 0; i < 120; ++i) run.step(1, StepKind::decode);
        for (uint32_t l = 0; l < 2; ++l) {
            for (uint32_t h = 0; h < 2; ++h) {
                const auto p = positions(run, l, h);
                CHECK(p.size() <= 44);
                CHECK(holds(p, 0, 2));
                CHECK(holds(p, 10, 14));
                CHECK(holds(p, 20, 25));
                CHECK(holds(p, 60, 63));
                CHECK_FALSE(holds(p, 14, 15));
                CHECK(p.back() == 180);
            }
        }
    }
}

TEST_CASE("A pin follows its tokens if keys are rotated") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = newest_are_best();
        CacheConfig config = budget_of(script, 40);
        config.positions = KvPositions::rerotated;
        config.rope_frequencies = pin_frequencies();
        config.trained_context = 256;
        config.protect_prefix = 1;
        ManagerRun run(device, pin_shape(), config);
        run.manager->pin(12, 20, "generation.pin");
        run.step(60, StepKind::prefill_end);
        for (int i = 0; i < 100; ++i) run.step(1, StepKind::decode);
        const auto p = positions(run, 1, 0);
        const auto length = static_cast<int64_t>(p.size());
        CHECK(p.back() - p.front() == length - 1); // their positions are contiguous
        // Slot 0 is token 0. The next eight are the pinned tokens. The newest tokens follow.
        std::vector<int64_t> kept = {0};
        for (int64_t t = 12; t < 20; ++t) kept.push_back(t);
        for (int64_t t = 160 - (length - 9); t < 160; ++t) kept.push_back(t);
        const std::vector<int64_t> turned(p.begin(), p.end());
        const auto query = run.rig.tokens().query(3, 160);
        CHECK(largest_difference(run.rig.attention(run.manager->cache(), 1, query),
                                 run.rig.expected(1, query, {kept, kept}, {turned, turned})) <
              1e-4);
    }
}

TEST_CASE("Tokens can be pinned while they are in the cache") {
    Script script = newest_are_best();
    CacheConfig config = budget_of(script, 40);
    ManagerRun run("reference", pin_shape(), config);
    run.step(60, StepKind::prefill_end); // slots 20 to 59 are left
    CHECK_THAT(error_text([&] { run.manager->pin(15, 25, "/pin"); }, ErrorKind::usage),
               Contains("were evicted"));
    run.manager->pin(22, 26, "/pin");
    run.manager->pin(50, 62, "/pin"); // the pin includes tokens that are not read yet
    for (int i = 0; i < 100; ++i) run.step(1, StepKind::decode);
    CHECK(holds(positions(run, 0, 1), 22, 26));
    CHECK(holds(positions(run, 0, 1), 50, 62));
    CHECK_FALSE(holds(positions(run, 0, 1), 21, 22));

    // If keys are rotated again, only tokens since the last eviction can be pinned.
    config.positions = KvPositions::rerotated;
    config.rope_frequencies = pin_frequencies();
    ManagerRun turned("reference", pin_shape(), config);
    turned.step(60, StepKind::prefill_end);
    turned.step(2, StepKind::decode);
    CHECK_NOTHROW(turned.manager->pin(55, 62, "/pin"));
}

TEST_CASE("Pins that leave no free slots are refused, with the numbers and the key") {
    Script script = newest_are_best();
    CacheConfig config = budget_of(script, 40);
    config.protect_prefix = 10;
    config.protect_recent = 10;
    ManagerRun run("reference", pin_shape(), config);
    CHECK_THAT(error_text([&] { run.manager->pin(10, 30, "generation.pin"); }, ErrorKind::input),
               Contains("generation.pin") && Contains("20 pinned") && Contains("at least 41"));
    CHECK_NOTHROW(run.manager->pin(5, 29, "generation.pin")); // 19 of them are after the prefix
    CHECK(run.manager->pinned_tokens() == 19);
    config.pinned = {{10, 50}};
    CHECK_THAT(error_text([&] { ManagerRun("reference", pin_shape(), config); }, ErrorKind::input),
               Contains("policy.protect") && Contains("spans 40"));
    // If the policy sets its own budget, pinned tokens are added to it.
    script.needs.own_budget = 20;
    config.budget_unit = BudgetUnit::none;
    ManagerRun own("reference", pin_shape(), config);
    CHECK(own.plan->budget().at(0).tokens == 70);
}

TEST_CASE("Pinned quantized keys are rotated without accumulating rounding errors") {
    for (const keel_dtype dtype : {KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        Script script = newest_are_best();
        CacheConfig config = budget_of(script, 40);
        config.slack = 1;
        config.positions = KvPositions::rerotated;
        config.rope_frequencies = pin_frequencies();
        config.pinned = {{3, 5}};
        ManagerRun run("reference", pin_shape(dtype), config);
        run.manager->pin(10, 12, "/pin");
        run.step(60, StepKind::prefill_end);
        const auto error = [&] { // error of the pinned keys at their current positions
            const KvCache &cache = run.manager->cache();
            const auto keys = run.rig.keys(run.manager->cache(), 0);
            const size_t dim = run.plan->shape().head_dim;
            double sum = 0;
            for (const auto &[slot, token] :
                 {std::pair<size_t, int64_t>{0, 3}, {1, 4}, {2, 10}, {3, 11}}) {
                const auto truth = run.rig.tokens().key(token, 0, 0, cache.positions(0, 0)[slot]);
                for (size_t d = 0; d < dim; ++d)
                    sum += std::pow(double{keys[slot * dim + d]} - double{truth[d]}, 2);
            }
            return std::sqrt(sum);
        };
        double early = 0, late = 0;
        for (int i = 0; i < 240; ++i) {
            run.step(1, StepKind::decode);
            if (i < 40) early += error();
            if (i >= 200) late += error();
        }
        CHECK(run.manager->evictions() > 100);
        CHECK(late < 1.25 * early);
    }
}

TEST_CASE("Pins are removed with their tokens and by a reset, and pins of the config come back") {
    Script script = newest_are_best();
    CacheConfig config = budget_of(script, 40);
    config.pinned = {{4, 8}};
    ManagerRun run("reference", pin_shape(), config);
    run.manager->pin(20, 30, "/pin");
    run.step(35, StepKind::prefill_chunk);
    CHECK(run.manager->pinned_tokens() == 14);
    run.manager->truncate(4);
    CHECK(run.manager->pinned_tokens() == 14);
    run.manager->truncate(3);
    CHECK(run.manager->pinned_tokens() == 4);
    run.manager->reset();
    CHECK(run.manager->pinned_tokens() == 4);
    run.step(60, StepKind::prefill_end);
    run.step(30, StepKind::decode);
    CHECK(holds(positions(run, 0, 0), 4, 8));
    CHECK_FALSE(holds(positions(run, 0, 0), 20, 21));
}

TEST_CASE("A fork keeps its parent's pins and is independent") {
    Script script = newest_are_best();
    ManagerRun run("reference", pin_shape(), budget_of(script, 40));
    run.manager->pin(3, 6, "/pin");
    run.step(40, StepKind::prefill_end);
    const auto fork = run.manager->fork();
    fork->pin(35, 39, "/pin");
    CHECK(fork->pinned_tokens() == 7);
    CHECK(run.manager->pinned_tokens() == 3);
}
