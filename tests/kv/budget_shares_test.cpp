// Tests how a budget is divided among heads, and which inputs and answers of an allocator are
// valid.
#include "kv/decision_rig.hpp"
#include "kv/evict/budget_shares.hpp"
#include "kv/scripted_allocator.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

using Slots = std::vector<int32_t>;

Script newest() {
    return DecisionRig::scored(KEEL_KEEP_HEAD_EQUAL,
                               [](uint32_t, uint32_t, int32_t s) { return static_cast<float>(s); });
}

// Returns an allocator that gives these shares, [layers, kv_heads].
Sharer giving(const Slots &shares, uint32_t flags) {
    Sharer sharer;
    sharer.needs = 0;
    sharer.flags = flags;
    sharer.allocate = [shares](const keel_allocator_input &, int32_t *budgets) {
        std::copy(shares.begin(), shares.end(), budgets);
    };
    return sharer;
}

Slots all(const BudgetShares &shares) {
    Slots list;
    for (uint32_t l = 0; l < 2; ++l) {
        const auto layer = shares.of_layer(l);
        list.insert(list.end(), layer.begin(), layer.end());
    }
    return list;
}

} // namespace

TEST_CASE("Without an allocator, all heads have the same share, at most the context") {
    Script script = newest();
    DecisionRig p(script);
    BudgetShares shares(*p.setup);
    p.feed(20);
    shares.share(20, *p.cache, *p.tokens);
    CHECK(all(shares) == Slots{20, 20, 20, 20});
    CHECK_FALSE(shares.any_above(*p.cache));
    p.feed(1);
    CHECK(shares.any_above(*p.cache));
    shares.share_evenly(1000);
    CHECK(all(shares) == Slots{64, 64, 64, 64});
}

TEST_CASE("An eviction starts if a single head is above its share") {
    Script script = newest();
    Sharer sharer = giving({30, 30, 30, 10}, KEEL_ALLOCATOR_RAGGED);
    DecisionRig p(script, [&](CacheConfig &c) { c.allocator = shared_by(sharer); });
    BudgetShares shares(*p.setup);
    p.feed(10);
    shares.share(25, *p.cache, *p.tokens);
    CHECK(all(shares) == Slots{30, 30, 30, 10});
    CHECK_FALSE(shares.any_above(*p.cache));
    p.feed(1);
    CHECK(shares.any_above(*p.cache));
}

TEST_CASE("An allocator gets the lengths, and the slots that stay whatever their scores") {
    Script script = newest();
    Sharer sharer = giving({20, 20, 20, 20}, 0);
    keel_allocator_input told = {};
    Slots lengths;
    const auto give = sharer.allocate;
    sharer.allocate = [&](const keel_allocator_input &in, int32_t *budgets) {
        told = in;
        lengths.assign(in.lengths, in.lengths + 4);
        give(in, budgets);
    };
    const auto ask = [&](int64_t target) {
        DecisionRig p(script, [&](CacheConfig &c) {
            c.allocator = shared_by(sharer);
            c.protect_prefix = 3;
            c.protect_recent = 2;
            c.pinned = {{10, 11}};
        });
        BudgetShares shares(*p.setup);
        p.feed(30);
        shares.share(target, *p.cache, *p.tokens);
    };
    ask(20);
    CHECK(told.layers == 2);
    CHECK(told.kv_heads == 2);
    CHECK(told.budget == 20);
    CHECK(lengths == Slots{30, 30, 30, 30});
    CHECK(told.scores == nullptr);
    CHECK(told.protected_slots == 6); // 3 in the prefix, 2 newest, 1 pinned
    CHECK(told.fixed_slots == 6);

    // The policy always keeps 8 slots: the newest 4, and 4 in the prefix. These include all
    // protected slots except the pinned one.
    script.needs.least_budget = 9;
    script.needs.window = 4;
    ask(20);
    CHECK(told.protected_slots == 9);
    CHECK(told.fixed_slots == 4 + 4 + 1);
}

TEST_CASE("An allocator cannot protect more slots than the budget has") {
    Script script = newest();
    Sharer sharer = giving({4, 4, 4, 4}, 0);
    keel_allocator_input told = {};
    const auto give = sharer.allocate;
    sharer.allocate = [&](const keel_allocator_input &in, int32_t *budgets) {
        told = in;
        give(in, budgets);
    };
    DecisionRig p(script, [&](CacheConfig &c) {
        c.allocator = shared_by(sharer);
        c.protect_prefix = 6;
    });
    BudgetShares shares(*p.setup);
    p.feed(30);
    shares.share(4, *p.cache, *p.tokens);
    CHECK(told.protected_slots == 4);
    CHECK(told.fixed_slots == 4);
}

TEST_CASE("An allocator that uses scores gets the scores of all layers") {
    Script script = DecisionRig::scored(
        KEEL_KEEP_HEAD_EQUAL,
        [](uint32_t l, uint32_t h, int32_t s) { return static_cast<float>(100 * l + 10 * h) + s; },
        4);
    Sharer sharer = giving({4, 6, 12, 18}, KEEL_ALLOCATOR_RAGGED);
    sharer.needs = KEEL_ALLOCATOR_NEED_SCORES;
    const auto give = sharer.allocate;
    sharer.allocate = [&](const keel_allocator_input &in, int32_t *budgets) {
        CHECK(in.stride == 9);
        CHECK(in.protected_slots == 5); // 4 that stay in any case, and the newest
        CHECK(in.scores[0][0] == 0);
        CHECK(in.scores[1][9 + 8] == 118);
        CHECK(in.protected_masks[1][9 + 8] == 1);
        CHECK(in.protected_masks[1][9 + 7] == 0);
        give(in, budgets);
    };
    DecisionRig p(script, [&](CacheConfig &c) {
        c.allocator = shared_by(sharer);
        c.protect_recent = 1;
    });
    p.feed(9);
    std::vector<LayerDecision> layers(2, LayerDecision(*p.setup));
    for (uint32_t l = 0; l < 2; ++l) p.ask(layers[l], l, {10, 10});
    BudgetShares shares(*p.setup);
    // a budget of 4 is below the 5 slots that stay
    CHECK_THROWS_AS(shares.share_by_scores(10, *p.cache, *p.tokens, layers), Error);
    sharer.allocate = [](const keel_allocator_input &, int32_t *budgets) {
        const Slots given = {5, 5, 12, 18};
        std::copy(given.begin(), given.end(), budgets);
    };
    shares.share_by_scores(10, *p.cache, *p.tokens, layers);
    CHECK(all(shares) == Slots{5, 5, 12, 18});
}

TEST_CASE("Heads that share a keep-list, or keep equally many slots, get equal shares") {
    const auto share = [](keel_granularity granularity, const Slots &given, uint32_t flags) {
        Script script = newest();
        script.needs.granularity = granularity;
        Sharer sharer = giving(given, flags);
        DecisionRig p(script, [&](CacheConfig &c) { c.allocator = shared_by(sharer); });
        BudgetShares shares(*p.setup);
        p.feed(30);
        shares.share(20, *p.cache, *p.tokens);
        return all(shares);
    };
    const auto refusal = [&](keel_granularity granularity, const Slots &given, uint32_t flags) {
        return error_text([&] { share(granularity, given, flags); }, ErrorKind::plugin);
    };
    constexpr uint32_t by_layer = KEEL_ALLOCATOR_BY_LAYER;
    CHECK_THAT(
        refusal(KEEL_KEEP_LAYER, {10, 20, 25, 25}, by_layer),
        Contains("budget allocator sharer gave layer 0, head 1 a budget of 20 slots, but the "
                 "previous head 10 slots; policy scripted needs the same budget for both heads"));
    CHECK(share(KEEL_KEEP_LAYER, {10, 10, 30, 30}, by_layer) == Slots{10, 10, 30, 30});
    CHECK_THAT(refusal(KEEL_KEEP_TOKEN, {10, 10, 30, 30}, 0), Contains("layer 1, head 0"));
    // The allocator did not declare that the heads of a layer may differ.
    CHECK_THAT(refusal(KEEL_KEEP_HEAD_EQUAL, {10, 10, 29, 31}, by_layer),
               Contains("layer 1, head 1"));
    CHECK(share(KEEL_KEEP_HEAD_EQUAL, {10, 20, 25, 25}, KEEL_ALLOCATOR_RAGGED) ==
          Slots{10, 20, 25, 25});
}

TEST_CASE("A sequence that moves keeps its allocator") {
    Script script = newest();
    Sharer sharer = giving({10, 10, 30, 30}, KEEL_ALLOCATOR_BY_LAYER);
    DecisionRig p(script, [&](CacheConfig &c) { c.allocator = shared_by(sharer); });
    BudgetShares old(*p.setup), moved(*p.setup);
    p.feed(30);
    moved.take_over(old);
    moved.share(20, *p.cache, *p.tokens);
    CHECK(all(moved) == Slots{10, 10, 30, 30});
    old.share(20, *p.cache, *p.tokens);
    CHECK(all(old) == Slots{20, 20, 20, 20});
}
