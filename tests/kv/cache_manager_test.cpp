#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape test_shape(keel_dtype dtype = KEEL_DTYPE_F32) { return kv_shape(128, dtype, 2); }

// Returns a policy that scores slots by position, the newest highest.
Script newest_first(keel_granularity granularity = KEEL_KEEP_HEAD_EQUAL) {
    Script script;
    script.needs.needs = KEEL_NEED_POSITIONS;
    script.needs.granularity = granularity;
    script.needs.output = KEEL_OUTPUT_SCORES;
    script.decide = [granularity](const keel_policy_input &in, keel_policy_decision &out) {
        const uint32_t rows = granularity <= KEEL_KEEP_LAYER ? 1 : in.kv_heads;
        for (uint32_t h = 0; h < rows; ++h) {
            for (int32_t s = 0; s < in.lengths[h]; ++s)
                out.scores[h * in.stride + s] = static_cast<float>(in.positions[h * in.stride + s]);
        }
        return KEEL_OK;
    };
    return script;
}

// A CacheManager of a rig. The test feeds it step by step.
struct Run {
    Run(const std::string &device, const KvShape &shape, Script &script, CacheConfig config)
        : rig(device, shape) {
        config.policy = scripted(script);
        plan = std::make_unique<PolicySetup>(rig.executor(), shape, rig.executor().device().host(),
                                             config);
        manager = std::make_unique<CacheManager>(*plan, rig.executor().placement());
    }
    std::vector<EvictionRecord> step(int64_t n, StepKind kind) {
        const auto before = manager->before_append(n, kind);
        std::vector<EvictionRecord> records(before.begin(), before.end());
        const int64_t first = manager->tokens_seen();
        const auto next = manager->next_positions(n);
        const std::vector<int32_t> positions(next.begin(), next.end());
        std::vector<int64_t> tokens(static_cast<size_t>(n));
        std::iota(tokens.begin(), tokens.end(), first);
        manager->append(n);
        rig.write(manager->cache(), tokens, positions);
        const auto after = manager->after_step(kind);
        records.insert(records.end(), after.begin(), after.end());
        return records;
    }
    std::vector<int32_t> positions(uint32_t layer = 0, uint32_t head = 0) const {
        const auto p = manager->cache().positions(layer, head);
        return {p.begin(), p.end()};
    }

    Rig rig;
    std::unique_ptr<PolicySetup> plan;
    std::unique_ptr<CacheManager> manager;
};

CacheConfig tokens_budget(double tokens) {
    CacheConfig config;
    config.budget_unit = BudgetUnit::tokens;
    config.budget = tokens;
    return config;
}

std::vector<int32_t> run_of(int32_t begin, int32_t end) {
    std::vector<int32_t> out(static_cast<size_t>(end - begin));
    std::iota(out.begin(), out.end(), begin);
    return out;
}

std::string refusal(const KvShape &shape, Script &script, CacheConfig config,
                    ErrorKind kind = ErrorKind::input) {
    return error_text([&] { Run("reference", shape, script, config); }, kind);
}

} // namespace

TEST_CASE("Below the budget a policy does not decide, and the cache is bitwise that of a run "
          "without it") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = newest_first(), all;
        all.needs.flags = KEEL_POLICY_KEEPS_ALL;
        Run with(device, test_shape(KEEL_DTYPE_F16), script, tokens_budget(64));
        with.step(40, StepKind::prefill_end);
        for (int i = 0; i < 24; ++i) CHECK(with.step(1, StepKind::decode).empty());
        CHECK(script.decided == 0);
        const auto query = with.rig.tokens().query(1, 64);
        const auto answer = with.rig.attention(with.manager->cache(), 1, query);

        Run without(device, test_shape(KEEL_DTYPE_F16), all, {});
        CHECK(without.plan->ops().empty());
        without.step(40, StepKind::prefill_end);
        for (int i = 0; i < 24; ++i) without.step(1, StepKind::decode);
        CHECK(without.rig.attention(without.manager->cache(), 1, query) == answer);
        CHECK(without.positions() == run_of(0, 64));
    }
}

TEST_CASE("The end of the prompt evicts down to the budget, and the records describe it") {
    Script script = newest_first();
    Run run("reference", test_shape(), script, tokens_budget(32));
    const auto records = run.step(60, StepKind::prefill_end);
    REQUIRE(records.size() == 2);
    CHECK(run.positions(1, 1) == run_of(28, 60));
    const EvictionRecord &r = records[1];
    CHECK(r.trigger == KEEL_TRIGGER_PREFILL_END);
    CHECK(r.tokens == 60);
    CHECK(r.layer == 1);
    CHECK(r.heads == 2);
    CHECK(r.held_max == 60);
    CHECK(r.evicted == 2 * 28);
    CHECK(r.evicted_max == 28);
    CHECK(r.kept_min == 32);
    CHECK(r.kept_max == 32);
    CHECK(r.freed_bytes ==
          // each head had 8 blocks before, and has 4 after
          2 * 4 * run.plan->shape().block_bytes());
    CHECK(r.has_scores);
    CHECK(r.score_min == 0);
    CHECK(r.score_max == 59);
    CHECK(r.microseconds > 0);
    CHECK(run.manager->evictions() == 1);
    CHECK(run.manager->eviction_us() == Approx(records[0].microseconds + records[1].microseconds));
    CHECK(run.manager->evicted_bytes() == 16 * run.plan->shape().block_bytes());
}

TEST_CASE("The budget trigger fires above budget plus slack, and leaves at most the budget") {
    Script script = newest_first();
    CacheConfig config = tokens_budget(32);
    SECTION("slack of an eighth by default") {}
    SECTION("slack of its own") { config.slack = 10; }
    SECTION("no slack") { config.slack = 0; }
    const int64_t slack = config.slack.value_or(4);
    config.at_prefill_end = false;
    Run run("reference", test_shape(), script, config);
    run.step(20, StepKind::prefill_end);
    int evictions = 0;
    for (int i = 0; i < 60; ++i) {
        const auto records = run.step(1, StepKind::decode);
        const int64_t length = run.manager->cache().max_length();
        REQUIRE(length <= 32 + slack);
        if (records.empty()) continue;
        ++evictions;
        CHECK(records[0].trigger == KEEL_TRIGGER_BUDGET);
        CHECK(records[0].held_max == 32 + slack + 1);
        CHECK(length == 32);
    }
    CHECK(evictions == (80 - 32) / (slack + 1));
}

TEST_CASE(
    "Protected tokens stay whatever the policy decides, and absolute positions never decrease") {
    for (const std::string &device : kv_devices()) {
        Script script = newest_first();
        script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                // keeps slots from the middle; heads differ
                for (int32_t s = 0; s < in.lengths[h]; ++s)
                    out.scores[h * in.stride + s] =
                        -std::abs(static_cast<float>(s - 12 - 4 * static_cast<int>(h)));
            }
            return KEEL_OK;
        };
        CacheConfig config = tokens_budget(24);
        config.protect_prefix = 3;
        config.protect_recent = 5;
        Run run(device, test_shape(), script, config);
        run.step(50, StepKind::prefill_end);
        for (int i = 0; i < 40; ++i) run.step(1, StepKind::decode);
        for (uint32_t l = 0; l < 2; ++l) {
            for (uint32_t h = 0; h < 2; ++h) {
                const auto positions = run.positions(l, h);
                CHECK(std::vector(positions.begin(), positions.begin() + 3) == run_of(0, 3));
                CHECK(std::vector(positions.end() - 5, positions.end()) == run_of(85, 90));
                CHECK(std::is_sorted(positions.begin(), positions.end()));
                CHECK(run.rig.device_positions(run.manager->cache(), l, h) == positions);
            }
        }
        CHECK(run.positions(0, 0) != run.positions(0, 1));
        const auto next = run.manager->next_positions(2);
        CHECK(std::vector(next.begin(), next.end()) == run_of(90, 92));
        // Attention sees exactly the kept slots.
        const auto query = run.rig.tokens().query(2, 90);
        std::vector<std::vector<int64_t>> kept;
        for (uint32_t h = 0; h < 2; ++h) {
            const auto p = run.positions(1, h);
            kept.emplace_back(p.begin(), p.end());
        }
        CHECK(largest_difference(run.rig.attention(run.manager->cache(), 1, query),
                                 run.rig.expected(1, query, kept, kept)) < 1e-5);
    }
}

TEST_CASE("The insert trigger makes room for tokens that would not fit") {
    Script script = newest_first();
    KvShape shape = test_shape();
    CacheConfig config = tokens_budget(120);
    config.at_prefill_end = config.at_budget = false;
    SECTION("in the context") {}
    SECTION("under the cap") { shape.max_bytes = 4 * 16 * shape.block_bytes(); }
    config.at_insert = true;
    Run run("reference", shape, script, config);
    run.step(120, StepKind::prefill_end);
    const auto records = run.step(20, StepKind::decode);
    REQUIRE(records.size() == 2);
    CHECK(records[0].trigger == KEEL_TRIGGER_INSERT);
    CHECK(records[0].kept_max == 108);
    CHECK(run.positions() == run_of(12, 140));

    config.at_insert = false;
    config.at_budget = true;
    Run stubborn("reference", shape, script, config);
    stubborn.step(120, StepKind::prefill_end);
    CHECK_THAT(error_text([&] { stubborn.step(20, StepKind::decode); }, ErrorKind::resource),
               Contains("insert") && Contains("policy.trigger.on"));
}

TEST_CASE("The every_n trigger evicts down to the budget every n tokens") {
    Script script = newest_first();
    CacheConfig config = tokens_budget(16);
    config.at_prefill_end = config.at_budget = false;
    config.every_n = 10;
    Run run("reference", test_shape(), script, config);
    for (int i = 1; i <= 60; ++i) {
        const auto records = run.step(1, StepKind::decode);
        CHECK(records.empty() == (i % 10 != 0 || i <= 16));
        if (!records.empty()) CHECK(records[0].trigger == KEEL_TRIGGER_EVERY_N);
    }
}

TEST_CASE("A policy that acts between chunks reads a prompt longer than the cache, and others "
          "refuse it") {
    Script script = newest_first(KEEL_KEEP_TOKEN);
    CacheConfig config = tokens_budget(40);
    std::string why;
    {
        Run run("reference", test_shape(), script, config);
        CHECK(run.manager->can_take(128, true));
        CHECK_FALSE(run.manager->can_take(129, true, &why));
        CHECK_THAT(why, Contains("model.context = 128") && Contains("scripted") &&
                            Contains("whole prompt"));
    }
    script.needs.flags = KEEL_POLICY_BLOCKWISE;
    Run run("reference", test_shape(), script, config);
    REQUIRE(run.manager->can_take(1000, true));
    int64_t left = 1000, chunks = 0;
    while (left > 0) {
        const int64_t n = run.manager->next_chunk(left, 64);
        REQUIRE(n > 0);
        REQUIRE(n <= 64);
        left -= n;
        const auto records =
            run.step(n, left == 0 ? StepKind::prefill_end : StepKind::prefill_chunk);
        if (!records.empty() && left > 0) CHECK(records[0].trigger == KEEL_TRIGGER_CHUNK);
        CHECK(run.manager->cache().max_length() <= 45);
        ++chunks;
    }
    CHECK(chunks == 16);
    CHECK(run.positions() == run_of(960, 1000));
}

TEST_CASE("The last chunk of a prompt has the window that a policy declares") {
    Script script = newest_first();
    script.needs.window = 20;
    Run run("reference", test_shape(), script, tokens_budget(40));
    CHECK(run.manager->next_chunk(100, 64) == 64); // 36 slots are free
    // not 64, which would leave only 6 for the last chunk
    CHECK(run.manager->next_chunk(70, 64) == 50);
    CHECK(run.manager->next_chunk(64, 64) == 64);
    CHECK(run.manager->next_chunk(5, 64) == 5);
}

TEST_CASE("If a policy keeps everything, the error for a full cache names the key to change") {
    Script all;
    all.needs.flags = KEEL_POLICY_KEEPS_ALL;
    Run run("reference", test_shape(), all, {});
    run.step(64, StepKind::prefill_chunk);
    run.step(64, StepKind::prefill_end);
    std::string why;
    CHECK_FALSE(run.manager->can_take(1, false, &why));
    CHECK_THAT(why, Contains("model.context = 128"));
    CHECK_THAT(error_text([&] { run.step(1, StepKind::decode); }, ErrorKind::resource),
               Contains("model.context"));
}

TEST_CASE("Budgets in ratio and MiB are converted to slots") {
    Script script = newest_first();
    CacheConfig config;
    config.slack = 0;
    config.budget_unit = BudgetUnit::ratio;
    config.budget = 0.25;
    {
        Run run("reference", test_shape(), script, config);
        run.step(100, StepKind::prefill_end);
        CHECK(run.manager->cache().max_length() == 25);
        for (int i = 0; i < 100; ++i) run.step(1, StepKind::decode);
        CHECK(run.manager->cache().max_length() == 50);
    }
    const KvShape shape = test_shape(KEEL_DTYPE_F16);
    config.budget_unit = BudgetUnit::mib;
    config.budget = 0.04; // 41943 bytes: 10 blocks for each of 4 heads
    Run run("reference", shape, script, config);
    run.step(100, StepKind::prefill_end);
    CHECK(run.manager->cache().max_length() == 79); // this includes the next token
    CHECK(run.manager->cache().bytes_in_use() <= 41943);
    CHECK(run.plan->budget().at(0).tokens == 79);
    config.slack = std::nullopt; // the default is an eighth of the budget
    CHECK(Run("reference", shape, script, config).plan->budget().at(0).tokens == 70);
    config.slack = 30;
    CHECK(Run("reference", shape, script, config).plan->budget().at(0).tokens == 49);
    config.slack = 79;
    CHECK_THAT(refusal(shape, script, config),
               Contains("policy.budget.mib") && Contains("80 slots for slack"));
    config.slack = std::nullopt;
    config.at_budget = false;
    config.every_n = 16;
    CHECK(Run("reference", shape, script, config).plan->budget().at(0).tokens == 63);
}

TEST_CASE("Impossible configs are refused with the key to change") {
    Script script = newest_first();
    const KvShape shape = test_shape();
    CHECK_THAT(refusal(shape, script, {}), Contains("policy.budget") && Contains("scripted"));
    CacheConfig config = tokens_budget(8);
    config.protect_prefix = 4;
    config.protect_recent = 4;
    CHECK_THAT(refusal(shape, script, config),
               Contains("policy.budget.tokens") && Contains("at least 9"));
    config = tokens_budget(0.5);
    config.budget_unit = BudgetUnit::ratio;
    config.budget = 1.5;
    CHECK_THAT(refusal(shape, script, config), Contains("policy.budget.ratio"));
    config.budget_unit = BudgetUnit::mib;
    config.budget = 0.001;
    CHECK_THAT(refusal(shape, script, config), Contains("policy.budget.mib"));
    KvShape capped = shape;
    capped.max_bytes = 4 * 4 * shape.block_bytes();
    CHECK_THAT(refusal(capped, script, tokens_budget(64)), Contains("kv.max_mib"));
    config = tokens_budget(32);
    config.log = "/no/such/folder/log.jsonl";
    CHECK_THAT(refusal(shape, script, config), Contains("policy.log"));
    script.needs.flags = KEEL_POLICY_PREFILL_ONLY;
    config = tokens_budget(32);
    config.at_prefill_end = false;
    CHECK_THAT(refusal(shape, script, config), Contains("prefill_end"));
    config.at_prefill_end = true;
    config.at_insert = true;
    CHECK_THAT(refusal(shape, script, config),
               Contains("policy.trigger.on") && Contains("the trigger insert has no effect"));
    config.at_insert = false;
    config.every_n = 4;
    CHECK_THAT(refusal(shape, script, config),
               Contains("policy.trigger.on") && Contains("the trigger every_n has no effect"));
}

TEST_CASE("A need that the core does not support is refused by its name") {
    Script script = newest_first();
    script.needs.needs = KEEL_NEED_POSITIONS | uint64_t{1} << 40;
    CHECK(refusal(test_shape(), script, tokens_budget(32)) ==
          "policy scripted needs bit 40, which this version of Keel does not compute");
    script.needs.needs = 1ull << 40;
    CHECK_THAT(refusal(test_shape(), script, tokens_budget(32)),
               Contains("policy scripted needs bit 40"));
    CHECK(script.created == script.destroyed);
}

TEST_CASE("A policy that breaks the rules is named, and the cache does not change") {
    struct Case {
        const char *what;
        keel_policy_output output;
        std::function<keel_status(const keel_policy_input &, keel_policy_decision &)> decide;
        const char *expected;
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<Case> cases = {
        {"NaN", KEEL_OUTPUT_SCORES,
         [nan](const keel_policy_input &in, keel_policy_decision &out) {
             std::fill(out.scores, out.scores + in.kv_heads * in.stride, 1.0f);
             if (in.layer == 1) out.scores[in.stride + 7] = nan;
             return KEEL_OK;
         },
         "policy scripted, layer 1, head 1: the score of slot 7 is NaN"},
        {"nothing written", KEEL_OUTPUT_SCORES,
         [](const keel_policy_input &, keel_policy_decision &) { return KEEL_OK; },
         "policy scripted, layer 0, head 0: the score of slot 0 is NaN"},
        {"unsorted", KEEL_OUTPUT_KEEP,
         [](const keel_policy_input &in, keel_policy_decision &out) {
             for (uint32_t h = 0; h < in.kv_heads; ++h) {
                 out.keep[h * in.stride] = 5;
                 out.keep[h * in.stride + 1] = 4;
                 out.keep_count[h] = 2;
             }
             return KEEL_OK;
         },
         "policy scripted, layer 0, head 0: the keep-list is not strictly rising: slot 4 comes "
         "after slot 5"},
        {"too many", KEEL_OUTPUT_KEEP,
         [](const keel_policy_input &in, keel_policy_decision &out) {
             out.keep_count[0] = in.lengths[0] + 1;
             return KEEL_OK;
         },
         "policy scripted, layer 0, head 0: the keep-list has 61 slots, but the head has only 60"},
        {"negative", KEEL_OUTPUT_KEEP,
         [](const keel_policy_input &, keel_policy_decision &out) {
             out.keep_count[0] = -3;
             return KEEL_OK;
         },
         "policy scripted, layer 0, head 0: the keep-list has -3 slots, but the head has only 60"},
        {"out of range", KEEL_OUTPUT_KEEP,
         [](const keel_policy_input &in, keel_policy_decision &out) {
             out.keep[0] = in.lengths[0];
             out.keep_count[0] = 1;
             return KEEL_OK;
         },
         "policy scripted, layer 0, head 0: the keep-list names slot 60, expected 0 to 59"},
        {"fails", KEEL_OUTPUT_KEEP,
         [](const keel_policy_input &, keel_policy_decision &) {
             return keel_status{KEEL_E_INTERNAL};
         },
         "policy scripted failed to decide on layer 0: "},
    };
    for (const Case &c : cases) {
        INFO(c.what);
        Script script = newest_first();
        script.needs.output = c.output;
        script.decide = c.decide;
        Run run("reference", test_shape(), script, tokens_budget(32));
        CHECK_THAT(error_text([&] { run.step(60, StepKind::prefill_end); }, ErrorKind::plugin),
                   Catch::StartsWith(c.expected));
        CHECK(run.positions(1, 1) == run_of(0, 60));
    }
}

TEST_CASE("If a policy keeps too many slots, the oldest unprotected ones are evicted") {
    Script script = newest_first();
    script.needs.output = KEEL_OUTPUT_KEEP;
    script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            for (int32_t s = 0; s < in.lengths[h]; ++s) out.keep[h * in.stride + s] = s;
            out.keep_count[h] = in.lengths[h];
        }
        return KEEL_OK;
    };
    CacheConfig config = tokens_budget(32);
    config.protect_prefix = 2;
    Run run("reference", test_shape(), script, config);
    run.step(60, StepKind::prefill_end);
    auto expected = run_of(30, 60);
    expected.insert(expected.begin(), {0, 1});
    CHECK(run.positions(1, 1) == expected);
}

TEST_CASE("Ragged policies keep different numbers of slots per head, and the average is within the "
          "budget") {
    Script script = newest_first(KEEL_KEEP_HEAD_RAGGED);
    script.needs.output = KEEL_OUTPUT_KEEP;
    script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            int32_t n = 0;
            for (int32_t s = 0; s < in.lengths[h]; s += 2 + 3 * static_cast<int32_t>(h))
                out.keep[h * in.stride + n++] = s;
            out.keep_count[h] = n;
        }
        return KEEL_OK;
    };
    Run run("cpu" == kv_devices().back() ? "cpu" : "reference", test_shape(), script,
            tokens_budget(32));
    const auto records = run.step(60, StepKind::prefill_end);
    REQUIRE(records.size() == 2);
    CHECK(records[0].kept_min == 12);
    CHECK(records[0].kept_max == 30);
    CHECK(records[0].evicted == 30 + 48);
    CHECK(records[0].evicted_max == 48);
    CHECK(run.manager->evicted_slots() == 48);
    for (int i = 0; i < 4; ++i) run.step(1, StepKind::decode);
    const auto query = run.rig.tokens().query(3, 64);
    std::vector<std::vector<int64_t>> kept;
    for (uint32_t h = 0; h < 2; ++h) {
        const auto p = run.positions(0, h);
        kept.emplace_back(p.begin(), p.end());
    }
    CHECK(kept[0].size() == 34);
    CHECK(kept[1].size() == 16);
    CHECK(largest_difference(run.rig.attention(run.manager->cache(), 0, query),
                             run.rig.expected(0, query, kept, kept)) < 1e-5);
    // one head has more than the budget, but both heads together do not
    CHECK(run.manager->evict().empty());
    for (int i = 0; i < 10; ++i) run.step(1, StepKind::decode);
    // Of 44 and 26 slots, 22 and 6 stay. The eviction of each head is compared with the length of
    // this head.
    const auto more = run.manager->evict();
    REQUIRE(more.size() == 2);
    CHECK(more[0].held_max == 44);
    CHECK(more[0].kept_min == 6);
    CHECK(more[0].evicted == 22 + 20);
    CHECK(more[0].evicted_max == 22);
    CHECK(run.manager->evicted_slots() == 48 + 22);
}

TEST_CASE("A policy gets the norms of the keys and values in the cache") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = newest_first();
        script.needs.needs = KEEL_NEED_KEY_NORMS | KEEL_NEED_VALUE_NORMS;
        std::vector<float> keys, values;
        script.decide = [&](const keel_policy_input &in, keel_policy_decision &out) {
            CHECK(in.positions == nullptr);
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                for (int32_t s = 0; s < in.lengths[h]; ++s) {
                    out.scores[h * in.stride + s] = -in.key_norms[h * in.stride + s];
                    keys.push_back(in.key_norms[h * in.stride + s]);
                    values.push_back(in.value_norms[h * in.stride + s]);
                }
            }
            return KEEL_OK;
        };
        Run run(device, test_shape(), script, tokens_budget(32));
        run.step(60, StepKind::prefill_end);
        REQUIRE(keys.size() == 2 * 2 * 60);
        const auto norm = [](const std::vector<float> &row) {
            double sum = 0;
            for (const float x : row) sum += double{x} * x;
            return std::sqrt(sum);
        };
        std::vector<std::pair<double, int32_t>> order; // layer 1, head 1
        for (int32_t t = 0; t < 60; ++t) {
            const double k = norm(run.rig.tokens().key(t, 1, 1, t));
            CHECK(keys[static_cast<size_t>(180 + t)] == Approx(k).epsilon(1e-5));
            CHECK(values[static_cast<size_t>(180 + t)] ==
                  Approx(norm(run.rig.tokens().value(t, 1, 1))).epsilon(1e-5));
            order.emplace_back(k, t);
        }
        std::sort(order.begin(), order.end());
        std::vector<int32_t> smallest;
        for (size_t i = 0; i < 32; ++i) smallest.push_back(order[i].second);
        std::sort(smallest.begin(), smallest.end());
        CHECK(run.positions(1, 1) == smallest);
    }
}

TEST_CASE("Forks are independent, evicted tokens cannot be taken back, and reset starts again") {
    Script script = newest_first();
    const TempFolder folder;
    CacheConfig config = tokens_budget(32);
    config.log = (folder / "log.jsonl").string();
    Run run("reference", test_shape(), script, config);
    run.step(60, StepKind::prefill_chunk);
    auto fork = run.manager->fork();
    CHECK(fork->tokens_seen() == 60);
    run.step(2, StepKind::prefill_end);
    CHECK(run.manager->cache().max_length() == 32);
    CHECK(fork->cache().max_length() == 60);
    CHECK(fork->evict().size() == 2);
    CHECK(fork->cache().max_length() == 32);

    run.manager->truncate(32);
    CHECK(run.manager->tokens_seen() == 30);
    CHECK_THAT(error_text([&] { run.manager->truncate(1); }, ErrorKind::usage),
               Contains("taken back"));
    run.manager->reset();
    CHECK(run.manager->tokens_seen() == 0);
    CHECK(run.manager->cache().bytes_in_use() == 0);
    run.step(10, StepKind::prefill_end);
    CHECK(run.positions() == run_of(0, 10));

    std::ifstream log(config.log);
    std::string line;
    int lines = 0;
    while (std::getline(log, line)) {
        CHECK_THAT(line, Contains(lines < 2 ? R"("sequence":0)" : R"("sequence":1)"));
        ++lines;
    }
    CHECK(lines == 4);
}

TEST_CASE("The log is emptied by the first sequence's cache, not by a plan") {
    const TempFolder folder;
    CacheConfig config = tokens_budget(32);
    config.log = folder.write("log.jsonl", "{\"sequence\":1}\n").string();
    Script script = newest_first();
    config.policy = scripted(script);
    Rig rig("reference", test_shape());
    PolicySetup plan(rig.executor(), test_shape(), rig.executor().device().host(), config);
    CHECK(std::filesystem::file_size(config.log) == 15);
    const CacheManager manager(plan, rig.executor().placement());
    CHECK(std::filesystem::file_size(config.log) == 0);
}

TEST_CASE("A policy with its own budget takes slack") {
    Script script = newest_first();
    script.needs.own_budget = 32;
    CacheConfig config;
    config.slack = 0;
    Run run("reference", test_shape(), script, config);
    CHECK(run.plan->budget().at(0).slack == 0);
    CHECK(run.plan->budget().at(0).tokens == 32);
    script.needs.own_budget = 0;
    CHECK_THAT(refusal(test_shape(), script, config),
               Catch::StartsWith("policy.budget.slack: expected a budget, because slack is set"));
}

TEST_CASE("The largest length is the budget only for a policy that acts during the prompt") {
    Script script = newest_first();
    CHECK(Run("reference", test_shape(), script, tokens_budget(32)).plan->budget().peak(16) == 128);
    script.needs.flags = KEEL_POLICY_BLOCKWISE;
    CHECK(Run("reference", test_shape(), script, tokens_budget(32)).plan->budget().peak(16) ==
          32 + 4 + 16);
    CHECK(Run("reference", test_shape(), script, tokens_budget(120)).plan->budget().peak(16) ==
          128);
    CacheConfig ratio;
    ratio.budget_unit = BudgetUnit::ratio;
    ratio.budget = 0.5;
    CHECK(Run("reference", test_shape(), script, ratio).plan->budget().peak(16) == 128);
}

TEST_CASE(
    "A failing policy is reported with the config line, or the parameter's line if it names one") {
    const std::string *words = nullptr;
    Script script = newest_first();
    HostServices *host = nullptr;
    script.decide = [&](const keel_policy_input &, keel_policy_decision &) -> keel_status {
        host->table()->set_error(host->table(), KEEL_E_INVALID_ARG, words->c_str());
        return KEEL_E_INVALID_ARG;
    };
    CacheConfig config = tokens_budget(32);
    Rig rig("reference", test_shape());
    host = rig.executor().device().host().get();
    config.policy = scripted(script);
    config.policy.places.plugin = {"f.yaml", 4, 11};
    config.policy.places.params.emplace_back("window", SourceLocation{"f.yaml", 5, 20});
    PolicySetup plan(rig.executor(), test_shape(), rig.executor().device().host(), config);
    CacheManager manager(plan, rig.executor().placement());
    manager.append(60);
    const auto text = [&](const std::string &message) {
        words = &message;
        return error_text([&] { manager.after_step(StepKind::prefill_end); }, ErrorKind::plugin);
    };
    CHECK_THAT(text("it rains"),
               Catch::StartsWith("f.yaml:4:11: policy scripted failed to decide"));
    CHECK_THAT(text("a window of 3 is too small"),
               Catch::StartsWith("f.yaml:5:20: policy scripted"));
    CHECK_THAT(text("windows are out"), Catch::StartsWith("f.yaml:4:11: "));
    // The error does not contain the message of another call.
    script.decide = [](const keel_policy_input &, keel_policy_decision &) -> keel_status {
        return KEEL_E_INTERNAL;
    };
    host->table()->set_error(host->table(), KEEL_E_INTERNAL, "a window of old");
    CHECK_THAT(text(""),
               Catch::EndsWith("an internal error") && Catch::StartsWith("f.yaml:4:11: "));
}
