// Tests when a sequence of a hybrid switches to another backend.
#include "run/switch_rules.hpp"

#include "hybrid_rig.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

TEST_CASE("the switch after a number of tokens fires once, before the decode step of this number") {
    Pipeline pipeline(two({"hybrid.switch.on=tokens", "hybrid.switch.after_tokens=3",
                           "hybrid.switch.to=b", "hybrid.switch.warmup_tokens=0"}));
    SwitchRules rules(pipeline);
    Engine &a = *pipeline.engines().find("a"), &b = *pipeline.engines().find("b");
    CHECK(&rules.start() == &a);
    std::vector<bool> stays, fires;
    for (int i = 0; i < 5; ++i) {
        stays.push_back(rules.stays_on(a));
        rules.count_decode();
        fires.push_back(rules.tokens_fire());
    }
    CHECK(fires == std::vector<bool>{false, false, true, false, false});
    // stays() is false before the step that switches. Afterwards, choose() returns the new backend.
    CHECK(stays == std::vector<bool>{true, true, false, true, true});
    rules.choose(b);
    CHECK(&rules.decode_engine() == &b);
    CHECK_FALSE(rules.stays_on(a));
    CHECK(rules.stays_on(b));

    const SwitchRules fork(pipeline, rules);
    CHECK(&fork.decode_engine() == &b);
    rules.reset();
    CHECK(&rules.decode_engine() == &a);
    rules.count_decode();
    CHECK_FALSE(rules.tokens_fire());
}

TEST_CASE("memory pressure fires when memory becomes short, and not while it stays short") {
    const auto monitor = std::make_shared<ScriptedMonitor>();
    PipelineOptions options;
    options.monitor = monitor;
    Pipeline pipeline(
        two({"hybrid.switch.on=pressure", "hybrid.switch.to=b", "hybrid.switch.available_mib=64"}),
        options);
    SwitchRules rules(pipeline);
    CHECK_FALSE(rules.pressure_fires(1));
    // memory pressure is not known in advance
    CHECK(rules.stays_on(*pipeline.engines().find("a")));
    SwitchRules later(pipeline);
    monitor->available = 1 << 20;
    CHECK(later.pressure_fires(1));
    CHECK_FALSE(later.pressure_fires(2));
}

TEST_CASE("without a trigger in the config nothing switches") {
    Pipeline pipeline(two({"hybrid.prefill=a", "hybrid.decode=b"}));
    SwitchRules rules(pipeline);
    for (int i = 0; i < 1000; ++i) {
        rules.count_decode();
        CHECK_FALSE(rules.tokens_fire());
        CHECK_FALSE(rules.pressure_fires(i));
    }
    CHECK(rules.prefill_engine().name == "a");
    CHECK(rules.decode_engine().name == "b");
    // After a lost device, the backend that decodes is tried first.
    const std::vector<Engine *> candidates = rules.candidates();
    REQUIRE(candidates.size() == 2);
    CHECK(candidates[0]->name == "b");
}
