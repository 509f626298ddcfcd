// Tests of the input that a policy gets for a layer, and of the keep-lists that are made from its
// answer.
#include "kv/decision_rig.hpp"
#include "kv/evict/layer_decision.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

using Lists = std::vector<std::vector<int32_t>>;

// Slots 0 to 9 have the scores 0 1 2 3 4 0 1 2 3 4.
float fives(uint32_t, uint32_t, int32_t slot) { return static_cast<float>(slot % 5); }

// Returns a policy that keeps exactly these slots of each head.
Script listing(const Lists &lists) {
    Script script;
    script.needs.granularity = KEEL_KEEP_HEAD_RAGGED;
    script.needs.output = KEEL_OUTPUT_KEEP;
    script.decide = [lists](const keel_policy_input &in, keel_policy_decision &out) {
        CHECK(out.scores == nullptr);
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            out.keep_count[h] = static_cast<int32_t>(lists[h].size());
            std::copy(lists[h].begin(), lists[h].end(), out.keep + h * in.stride);
        }
        return KEEL_OK;
    };
    return script;
}

} // namespace

TEST_CASE("A policy gets the layer's number in the model, lengths, budgets and protected slots") {
    Script script = DecisionRig::scored(KEEL_KEEP_HEAD_RAGGED, fives);
    const auto scores = script.decide;
    script.decide = [&](const keel_policy_input &in, keel_policy_decision &out) {
        CHECK(in.trigger == KEEL_TRIGGER_BUDGET);
        CHECK(in.layer == 6); // 5 layers come before the first layer of this cache
        CHECK(in.kv_heads == 2);
        CHECK(in.next_position == 10);
        CHECK(in.stride == 10);
        CHECK(std::vector(in.lengths, in.lengths + 2) == std::vector<int32_t>{10, 10});
        CHECK(std::vector(in.budgets, in.budgets + 2) == std::vector<int32_t>{4, 6});
        CHECK(std::vector(in.protected_mask + 10, in.protected_mask + 20) ==
              std::vector<uint8_t>{1, 1, 0, 0, 0, 0, 0, 0, 0, 1});
        CHECK(in.positions == nullptr); // the policy does not need positions
        CHECK(std::isnan(out.scores[19]));
        CHECK(out.stay[19] == 0);
        CHECK(out.keep == nullptr);
        return scores(in, out);
    };
    DecisionRig p(script, [](CacheConfig &c) {
        c.first_layer = 5;
        c.model_layers = 7;
        c.protect_prefix = 2;
        c.protect_recent = 1;
    });
    p.feed(10);
    p.decide(1, {4, 6});
    CHECK(script.decided == 1);
}

TEST_CASE("Each head keeps protected slots and its best others, within its own budget") {
    Script script = DecisionRig::scored(KEEL_KEEP_HEAD_RAGGED, fives);
    DecisionRig p(script, [](CacheConfig &c) { c.protect_prefix = 1; });
    p.feed(10);
    // Slot 0 is protected. Of equal scores, the newer slot stays.
    CHECK(p.decide(0, {4, 6}) == Lists{{0, 4, 8, 9}, {0, 3, 4, 7, 8, 9}});
    CHECK(p.decide(0, {1, 10}) == Lists{{0}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
    CHECK(p.record.has_scores);
    CHECK(p.record.score_min == 0);
    CHECK(p.record.score_max == 4);
}

TEST_CASE("Heads that must keep equally many slots lose their oldest ones") {
    Script script = DecisionRig::scored(KEEL_KEEP_HEAD_EQUAL, fives);
    DecisionRig p(script, [](CacheConfig &c) { c.protect_prefix = 1; });
    p.feed(10);
    // Head 1 has the slots 0 3 4 7 8 9. The oldest slots that are not protected are 3 and 4.
    CHECK(p.decide(0, {4, 6}) == Lists{{0, 4, 8, 9}, {0, 7, 8, 9}});
}

TEST_CASE("Heads that share a row of scores have one keep-list") {
    Script script = DecisionRig::scored(KEEL_KEEP_LAYER, fives);
    DecisionRig p(script);
    p.feed(10);
    CHECK(p.decide(1, {3, 3}) == Lists{{4, 8, 9}, {4, 8, 9}});
}

TEST_CASE("Slots that a policy always keeps come before slots with better scores") {
    Script script = DecisionRig::scored(KEEL_KEEP_HEAD_RAGGED, fives, 2);
    DecisionRig p(script);
    p.feed(10);
    CHECK(p.decide(0, {3, 1}) == Lists{{0, 1, 9}, {1}});
}

TEST_CASE("A missing score is refused with layer, head and slot") {
    Script script = DecisionRig::scored(KEEL_KEEP_HEAD_RAGGED, [](uint32_t, uint32_t h, int32_t s) {
        return h == 1 && s == 7 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    });
    DecisionRig p(script, [](CacheConfig &c) {
        c.first_layer = 5;
        c.model_layers = 7;
    });
    p.feed(10);
    const std::string expected = "policy scripted, layer 6, head 1: the score of slot 7 is NaN";
    CHECK_THAT(error_text([&] { p.decide(1, {4, 4}); }, ErrorKind::plugin), Contains(expected));
    LayerDecision decision(*p.setup);
    p.ask(decision, 1, {4, 4});
    CHECK_THAT(error_text([&] { decision.spread(); }, ErrorKind::plugin), Contains(expected));
}

TEST_CASE("A policy's own lists get the protected slots and are cut to the budget") {
    Script script = listing({{1, 3, 5}, {2, 3, 4, 5, 6, 7}});
    DecisionRig p(script, [](CacheConfig &c) { c.protect_recent = 1; });
    p.feed(10);
    CHECK(p.decide(0, {8, 4}) == Lists{{1, 3, 5, 9}, {5, 6, 7, 9}});
    CHECK_FALSE(p.record.has_scores);
}

TEST_CASE("A list with more slots than its head, or with a slot out of order, is refused") {
    const auto refusal = [](const Lists &lists, int32_t count = -2) {
        Script script = listing(lists);
        const auto decide = script.decide;
        script.decide = [&](const keel_policy_input &in, keel_policy_decision &out) {
            decide(in, out);
            if (count != -2) out.keep_count[1] = count;
            return KEEL_OK;
        };
        DecisionRig p(script);
        p.feed(10);
        return error_text([&] { p.decide(1, {10, 10}); }, ErrorKind::plugin);
    };
    CHECK_THAT(refusal({{}, {}}, 11),
               Contains("layer 1, head 1: the keep-list has 11 slots, but the head has only 10"));
    CHECK_THAT(refusal({{}, {}}, -1), Contains("the keep-list has -1 slots"));
    CHECK_THAT(refusal({{}, {1, 1}}), Contains("not strictly rising"));
    CHECK_THAT(refusal({{10}, {}}), Contains("layer 1, head 0") && Contains("slot 10"));
}

TEST_CASE("For an allocator, each head gets the shared row, and the slots that stay are counted") {
    Script script = DecisionRig::scored(KEEL_KEEP_LAYER, fives, 3);
    DecisionRig p(script, [](CacheConfig &c) {
        c.protect_prefix = 2;
        c.protect_recent = 2;
    });
    p.feed(10);
    LayerDecision decision(*p.setup);
    p.ask(decision, 0, {8, 8});
    // Slots 0 and 1 are protected and stay, slot 2 stays, and slots 8 and 9 are protected.
    CHECK(decision.spread() == 5);
    CHECK(std::vector(decision.scores() + 10, decision.scores() + 20) ==
          std::vector<float>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
    CHECK(std::vector(decision.held() + 10, decision.held() + 20) ==
          std::vector<uint8_t>{1, 1, 1, 0, 0, 0, 0, 0, 1, 1});
}
