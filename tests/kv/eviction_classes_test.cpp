// Tests of EvictionClock, ProtectedTokens and Eviction, without a CacheManager.
#include "kv/evict/eviction.hpp"
#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

KvShape two_heads() {
    KvShape s;
    s.layers = 2;
    s.heads = s.kv_heads = 2;
    s.head_dim = 32;
    s.block_slots = 8;
    s.max_slots = 64;
    return s;
}

// A budget of 20 slots and a slack of 4, for a policy that keeps the slots with the highest scores.
struct Parts {
    explicit Parts(const std::function<void(CacheConfig &)> &change = {},
                   uint32_t flags = KEEL_POLICY_BLOCKWISE)
        : rig("reference", two_heads()) {
        script.needs.granularity = KEEL_KEEP_HEAD_EQUAL;
        script.needs.output = KEEL_OUTPUT_SCORES;
        script.needs.flags = flags;
        script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                for (int32_t s = 0; s < in.lengths[h]; ++s)
                    out.scores[h * in.stride + s] = static_cast<float>(s % 10);
            }
            return KEEL_OK;
        };
        CacheConfig config;
        config.policy = scripted(script);
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 20;
        config.slack = 4;
        if (change) change(config);
        setup = std::make_unique<PolicySetup>(rig.executor(), two_heads(),
                                              rig.executor().device().host(), config);
        tokens = std::make_unique<ProtectedTokens>(*setup);
        clock = std::make_unique<EvictionClock>(*setup, *tokens);
        cache = rig.make_cache();
    }
    void feed(int64_t n) {
        tokens->record_append(*cache, seen, n);
        rig.feed(*cache, seen, n);
        clock->count(n);
        seen += n;
    }
    // Returns the trigger that fires after a step, or 0.
    keel_trigger after(StepKind kind) {
        const auto firing = clock->after_step(kind, *cache, seen);
        if (firing) CHECK(firing->target == 20);
        return firing ? firing->trigger : keel_trigger{0};
    }
    std::vector<int> marked() const {
        std::vector<uint8_t> mask(static_cast<size_t>(cache->row_length(1)), 0);
        tokens->mark(*cache, 1, mask.data());
        std::vector<int> slots;
        for (size_t i = 0; i < mask.size(); ++i)
            if (mask[i] != 0) slots.push_back(static_cast<int>(i));
        return slots;
    }

    Script script;
    Rig rig;
    std::unique_ptr<PolicySetup> setup;
    std::unique_ptr<ProtectedTokens> tokens;
    std::unique_ptr<EvictionClock> clock;
    std::unique_ptr<KvCache> cache;
    int64_t seen = 0;
};

constexpr auto chunk = StepKind::prefill_chunk, end = StepKind::prefill_end,
               decode = StepKind::decode;

} // namespace

TEST_CASE("The budget trigger fires above budget and slack, between chunks and in decode steps") {
    Parts p;
    p.feed(24);
    CHECK(p.after(chunk) == 0);
    CHECK(p.after(decode) == 0);
    CHECK_FALSE(p.clock->will_fire_next(*p.cache, p.seen));
    p.feed(1);
    CHECK(p.clock->will_fire_next(*p.cache, p.seen));
    CHECK(p.after(chunk) == KEEL_TRIGGER_CHUNK);
    CHECK(p.after(decode) == KEEL_TRIGGER_BUDGET);
    CHECK(p.after(end) == KEEL_TRIGGER_PREFILL_END);
}

TEST_CASE("A policy that is not blockwise acts at the prompt's end and in decode steps") {
    Parts p({}, 0);
    p.feed(40);
    CHECK(p.after(chunk) == 0);
    CHECK(p.after(end) == KEEL_TRIGGER_PREFILL_END);
    CHECK(p.after(decode) == KEEL_TRIGGER_BUDGET);
}

TEST_CASE("A policy that acts on prompts only never fires in decode steps") {
    Parts p({}, KEEL_POLICY_PREFILL_ONLY);
    p.feed(40);
    CHECK(p.after(end) == KEEL_TRIGGER_PREFILL_END);
    CHECK(p.after(decode) == 0);
    CHECK_FALSE(p.clock->will_fire_next(*p.cache, p.seen));
    CHECK_FALSE(p.clock->may_act(decode));
}

TEST_CASE("every_n fires once every n tokens, without tokens that are taken back") {
    Parts p([](CacheConfig &c) {
        c.every_n = 6;
        c.at_budget = false;
    });
    p.feed(5);
    CHECK(p.after(decode) == 0);
    p.clock->count(-2);
    p.feed(2);
    CHECK(p.after(decode) == 0);
    p.feed(1);
    CHECK(p.clock->will_fire_next(*p.cache, p.seen));
    CHECK(p.after(decode) == KEEL_TRIGGER_EVERY_N);
    CHECK(p.after(decode) == 0); // the count starts again here
}

TEST_CASE("The insert trigger makes room for a step, but keeps protected slots") {
    Parts p([](CacheConfig &c) {
        c.at_insert = true;
        c.protect_prefix = 10;
        c.protect_recent = 5;
    });
    const auto firing = p.clock->before_append(decode, 1, 60);
    REQUIRE(firing);
    CHECK(firing->trigger == KEEL_TRIGGER_INSERT);
    CHECK(firing->target == 20);
    CHECK(p.clock->before_append(chunk, 48, 60)->target == 16);
    CHECK_FALSE(p.clock->before_append(chunk, 49, 60)); // 15 slots are protected
    Parts without;
    CHECK_FALSE(without.clock->before_append(decode, 1, 60));
}

TEST_CASE("If memory is watched, no step is queued ahead") {
    Parts p([](CacheConfig &c) { c.pressure = PressureConfig{}; });
    p.feed(3);
    CHECK(p.clock->will_fire_next(*p.cache, p.seen));
    CHECK(p.after(decode) == 0);
}

TEST_CASE("For a policy that keeps everything, no trigger fires") {
    Parts p({}, KEEL_POLICY_KEEPS_ALL);
    p.feed(60);
    for (const StepKind kind : {chunk, end, decode}) CHECK(p.after(kind) == 0);
    CHECK_FALSE(p.clock->will_fire_next(*p.cache, p.seen));
}

TEST_CASE("Prefix, recent and pinned slots are protected, also before they are in the cache") {
    Parts p([](CacheConfig &c) {
        c.protect_prefix = 2;
        c.protect_recent = 3;
        c.pinned = {{5, 7}};
    });
    CHECK(p.tokens->slots() == 7);
    p.feed(6);
    CHECK(p.marked() == std::vector<int>{0, 1, 3, 4, 5});
    p.feed(6);
    CHECK(p.marked() == std::vector<int>{0, 1, 5, 6, 9, 10, 11});
    p.tokens->pin({8, 9}, *p.cache, p.seen, p.seen, "a pin");
    CHECK(p.marked() == std::vector<int>{0, 1, 5, 6, 8, 9, 10, 11});
    CHECK(p.tokens->pinned() == 3);
    p.tokens->unpin(8);
    CHECK(p.tokens->pinned() == 2);
    p.tokens->set_prefix(6);
    // the pin begins in the protected prefix, which does not count twice
    CHECK(p.tokens->pinned() == 1);
    CHECK(p.marked() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 9, 10, 11});
}

TEST_CASE("A pin follows its tokens when slots before it are evicted") {
    Parts p;
    p.feed(12);
    p.tokens->pin({8, 10}, *p.cache, p.seen, p.seen, "a pin");
    CHECK(p.marked() == std::vector<int>{8, 9});
    const KeepLists keep = {{0, 3, 8, 9, 11}, {0, 3, 8, 9, 11}};
    for (uint32_t l = 0; l < 2; ++l) {
        p.tokens->record_compact(l, keep);
        p.cache->compact(l, keep, p.rig.gather());
    }
    p.cache->publish();
    CHECK(p.marked() == std::vector<int>{2, 3});
    CHECK_THROWS_AS(p.tokens->pin({3, 5}, *p.cache, p.seen, 1, "a pin"), Error);
}

TEST_CASE(
    "An eviction keeps protected slots and the slots with the best scores, and counts its work") {
    Parts p([](CacheConfig &c) {
        c.protect_prefix = 2;
        c.protect_recent = 1;
    });
    p.feed(30);
    PolicyInputs inputs(*p.setup, p.rig.executor().placement());
    Eviction eviction(*p.setup, 0);
    EvictionTotals totals;
    const SequenceStamp stamp;
    int64_t tail = p.seen;
    const Eviction::Sequence sequence = {*p.cache, inputs, *p.tokens, *p.clock, nullptr,
                                         totals,   stamp,  p.seen,    tail,     {}};
    CHECK_FALSE(eviction.run({KEEL_TRIGGER_BUDGET, 30}, sequence)); // no head is above the budget
    REQUIRE(eviction.run({KEEL_TRIGGER_BUDGET, 8}, sequence));
    REQUIRE(eviction.records().size() == 2);
    CHECK(eviction.records()[1].layer == 1);
    CHECK(eviction.records()[1].evicted == 2 * 22);
    const auto kept = p.cache->positions(1, 1);
    // The score is the last digit of the slot. The six slots with the scores 9 and 8 would stay;
    // one of them, slot 29, is protected in any case.
    CHECK(std::vector(kept.begin(), kept.end()) ==
          std::vector<int32_t>{0, 1, 8, 9, 18, 19, 28, 29});
    CHECK(totals.evictions == 1);
    CHECK(totals.evicted_slots == 22);
    CHECK(tail == 2);
}

TEST_CASE("A budget in each unit becomes slots per head") {
    CacheConfig config;
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    KvShape shape = two_heads();
    const auto at = [&](BudgetUnit unit, double value, int64_t seen) {
        config.budget_unit = unit;
        config.budget = value;
        return Budget(config, needs, shape, {}, 16).at(seen);
    };
    CHECK(at(BudgetUnit::tokens, 40, 0).tokens == 40);
    CHECK(at(BudgetUnit::tokens, 40, 0).slack == 5);
    CHECK(at(BudgetUnit::tokens, 60, 0).slack == 3); // one slot is kept free for the next token
    CHECK(at(BudgetUnit::ratio, 0.5, 33).tokens == 16);
    needs.own_budget = 12;
    config.protect_prefix = 4;
    CHECK(at(BudgetUnit::none, 0, 0).tokens == 16);
    shape.max_bytes = 5 * 4 * shape.block_bytes() + 1;
    CHECK(Budget(config, needs, shape, {}, 16).capacity() == 40);
}
