// Tests of the needs that policies declare, and of their edge cases.
#include "kv/evict/keep_lists.hpp"
#include "policies/plugin_rig.hpp"
#include "policies/scene.hpp"

#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

keel_policy_needs needs_of(const std::string &name,
                           const std::map<std::string, std::string> &given = {}) {
    const LoadedPlugin plugin(name, given);
    const TestModel model(2, 4, 2, 16);
    const PolicyRun run(plugin, model);
    REQUIRE(run.status == KEEL_OK);
    return run.needs;
}

// The slots of one head. All inputs of a policy have the same value in each slot.
struct Flat {
    explicit Flat(int32_t n)
        : length(n), ones(static_cast<size_t>(n) * 16, 1.0f), positions(static_cast<size_t>(n)),
          mask(static_cast<size_t>(n)) {
        std::iota(positions.begin(), positions.end(), 0);
        input.kv_heads = input.heads = 1;
        input.next_position = input.stride = n;
        input.lengths = &length;
        input.budgets = &budget;
        input.protected_mask = mask.data();
        input.positions = positions.data();
        input.key_norms = input.value_norms = input.scores = input.key_sum = input.key_project =
            input.query_sum = input.query_second = input.keys = input.key_anchor =
                input.chunk_scores = ones.data();
        input.query_count = 1;
    }
    int32_t length, budget = 10;
    std::vector<float> ones;
    std::vector<int32_t> positions;
    std::vector<uint8_t> mask;
    keel_policy_input input = {KEEL_HEADER(keel_policy_input)};
};

} // namespace

TEST_CASE("Policies declare when they act and what their scores mean") {
    struct Row {
        const char *name;
        std::map<std::string, std::string> given;
        uint32_t flags;
        keel_granularity granularity;
    };
    const uint32_t comparable = KEEL_POLICY_COMPARABLE, once = KEEL_POLICY_PREFILL_ONLY,
                   blocks = KEEL_POLICY_BLOCKWISE, seeded = KEEL_POLICY_SEEDED;
    const std::vector<Row> rows = {
        {"none", {}, KEEL_POLICY_KEEPS_ALL, KEEL_KEEP_TOKEN},
        {"sliding_window", {}, blocks, KEEL_KEEP_TOKEN},
        {"random", {}, comparable | blocks | seeded, KEEL_KEEP_HEAD_EQUAL},
        {"random", {{"per", "token"}}, comparable | blocks | seeded, KEEL_KEEP_TOKEN},
        {"random", {{"per", "layer"}}, comparable | blocks | seeded, KEEL_KEEP_LAYER},
        {"snapkv", {}, comparable | once, KEEL_KEEP_HEAD_EQUAL},
        {"snapkv", {{"decode", "true"}}, comparable, KEEL_KEEP_HEAD_EQUAL},
        {"h2o", {}, comparable, KEEL_KEEP_HEAD_EQUAL},
        {"h2o", {{"blockwise", "true"}}, comparable | blocks, KEEL_KEEP_HEAD_EQUAL},
        {"tova", {}, comparable, KEEL_KEEP_LAYER},
        {"keydiff", {}, blocks, KEEL_KEEP_HEAD_EQUAL},
        {"keydiff", {{"blockwise", "false"}}, 0, KEEL_KEEP_HEAD_EQUAL},
        {"knorm", {}, blocks, KEEL_KEEP_HEAD_EQUAL},
        {"expected_attention", {}, 0, KEEL_KEEP_HEAD_EQUAL},
        {"expected_attention", {{"value_norms", "false"}}, comparable, KEEL_KEEP_HEAD_EQUAL},
        {"compactor", {}, once | seeded, KEEL_KEEP_HEAD_EQUAL},
        {"kvzip", {}, comparable | once, KEEL_KEEP_HEAD_RAGGED},
        {"kvzip",
         {{"compat", "kvpress"}},
         comparable | once | KEEL_POLICY_KVPRESS_WORDS,
         KEEL_KEEP_HEAD_RAGGED},
    };
    for (const Row &row : rows) {
        INFO(row.name);
        const keel_policy_needs needs = needs_of(row.name, row.given);
        CHECK(needs.flags == row.flags);
        CHECK(needs.granularity == row.granularity);
    }
    CHECK(needs_of("snapkv", {{"window", "48"}}).least_budget == 49);
    CHECK(needs_of("kvzip", {{"chunk", "512"}, {"lead", "3"}, {"sinks", "7"}}).replay_chunk == 512);
    CHECK(needs_of("kvzip", {{"chunk", "512"}, {"lead", "3"}, {"sinks", "7"}}).replay_lead == 3);
    CHECK(needs_of("kvzip", {{"chunk", "512"}, {"lead", "3"}, {"sinks", "7"}}).replay_sinks == 7);
    CHECK(needs_of("compactor", {{"sketch", "64"}}).projection_cols ==
          16); // not more than the head has
    CHECK(needs_of("expected_attention", {{"sinks", "9"}}).skip_queries == 9);
}

TEST_CASE("compactor refuses to score as kvpress, and says why") {
    const TestModel model(1, 4, 2, 16);
    const LoadedPlugin plugin("compactor", {{"compat", "kvpress"}});
    const PolicyRun run(plugin, model);
    CHECK(run.status == KEEL_E_UNSUPPORTED);
    CHECK_THAT(PolicyRun::error(),
               Contains("kvpress fills up the last piece") && Contains("remove compat"));
}

TEST_CASE("Of equal scores the newest slots stay, under every policy") {
    const TestModel model(1, 1, 1, 4);
    for (const char *name :
         {"h2o", "tova", "keydiff", "knorm", "expected_attention", "snapkv", "kvzip"}) {
        INFO(name);
        std::map<std::string, std::string> given;
        if (std::string(name) == "snapkv")
            given = {{"window", "2"}, {"pool", "max"}}; // the mean becomes smaller near the edges
        const LoadedPlugin plugin(name, given);
        PolicyRun run(plugin, model);
        REQUIRE(run.status == KEEL_OK);
        Flat flat(30);
        std::vector<float> scores;
        std::vector<uint8_t> stay;
        REQUIRE(run.decide(flat.input, scores, stay) == KEEL_OK);
        std::vector<int32_t> order, keep;
        keep_best({30, 10, flat.mask.data(), stay.data()}, scores.data(), name, order, keep);
        std::vector<int32_t> expected;
        for (int32_t t = 0; t < 30; ++t)
            // attention sinks
            if (stay[static_cast<size_t>(t)] != 0 && t < 15) expected.push_back(t);
        for (int32_t t = 30 - (10 - static_cast<int32_t>(expected.size())); t < 30; ++t)
            expected.push_back(t);
        CHECK(keep == expected);
        keep_best({30, 30, flat.mask.data(), stay.data()}, scores.data(), name, order,
                  keep); // if the budget equals the length, all slots stay
        CHECK(keep.size() == 30);
    }
}

TEST_CASE("snapkv evicts nothing of a text within its window, and refuses impossible pooling") {
    const TestModel model(1, 4, 2, 16);
    Scene scene(9, 4, 2, 16, 20, false, model.frequencies);
    const LoadedPlugin plugin("snapkv", {{"window", "20"}});
    PolicyRun run(plugin, model);
    std::vector<float> scores;
    std::vector<uint8_t> stay;
    const keel_policy_input input = scene.input(run.needs, 5);
    REQUIRE(run.decide(input, scores, stay) == KEEL_OK);
    for (uint32_t h = 0; h < 2; ++h)
        CHECK(std::count(stay.begin() + h * input.stride, stay.begin() + h * input.stride + 20,
                         uint8_t{1}) == 20);

    const LoadedPlugin even("snapkv", {{"kernel", "4"}});
    const PolicyRun refused(even, model);
    CHECK(refused.status == KEEL_E_INVALID_ARG);
    CHECK(PolicyRun::error() == "kernel: expected an odd number, found 4");
    CHECK_THAT(error_text([] {
                   LoadedPlugin("snapkv", {{"pool", "median"}});
               }),
               Contains("avg, max"));
}

TEST_CASE("expected_attention refuses models whose layers differ in RoPE") {
    TestModel model(2, 4, 2, 16);
    model.geometry.rope_frequencies = nullptr;
    model.geometry.rot = 0;
    const LoadedPlugin plugin("expected_attention");
    const PolicyRun run(plugin, model);
    CHECK(run.status == KEEL_E_UNSUPPORTED);
    CHECK_THAT(PolicyRun::error(), Contains("the same RoPE in all layers"));
}

TEST_CASE("expected_attention without a counted query uses only value norms") {
    const TestModel model(1, 2, 1, 8);
    Scene scene(5, 2, 1, 8, 4, false, model.frequencies);
    const LoadedPlugin plugin("expected_attention", {{"sinks", "2"}, {"epsilon", "0"}});
    PolicyRun run(plugin, model);
    keel_policy_input input = scene.input(run.needs, 3);
    const std::vector<float> nothing(2 * 8 * 8, 0.0f);
    input.query_sum = input.query_second = nothing.data();
    input.query_count = 0;
    std::vector<float> scores;
    std::vector<uint8_t> stay;
    REQUIRE(run.decide(input, scores, stay) == KEEL_OK);
    CHECK(scores[2] == Approx(0.5 * input.value_norms[2]));
    CHECK(scores[3] == Approx(0.5 * input.value_norms[3]));
}

TEST_CASE("random draws evenly, and depends only on seed, layer, head and position") {
    const TestModel model(2, 2, 2, 8);
    const int32_t n = 4000, lengths[] = {n, n}, budgets[] = {10, 10};
    std::vector<int32_t> positions(2 * n);
    std::iota(positions.begin(), positions.begin() + n, 0);
    std::iota(positions.begin() + n, positions.end(), 0);
    const std::vector<uint8_t> mask(2 * n, 0);
    keel_policy_input input = {KEEL_HEADER(keel_policy_input)};
    input.kv_heads = input.heads = 2;
    input.stride = n;
    input.lengths = lengths;
    input.budgets = budgets;
    input.positions = positions.data();
    input.protected_mask = mask.data();
    const auto draw = [&](const std::map<std::string, std::string> &given, uint64_t seed,
                          uint32_t layer) {
        const LoadedPlugin plugin("random", given);
        PolicyRun run(plugin, model, seed);
        std::vector<float> scores;
        std::vector<uint8_t> stay;
        input.layer = layer;
        REQUIRE(run.decide(input, scores, stay) == KEEL_OK);
        return scores;
    };
    const auto one = draw({}, 1, 0);
    int tenths[10] = {};
    for (int32_t t = 0; t < n; ++t) ++tenths[static_cast<int>(one[static_cast<size_t>(t)] * 10)];
    for (const int count : tenths)
        CHECK(std::abs(count - n / 10) < 100); // five standard deviations
    const auto second_head = std::vector<float>(one.begin() + n, one.end());
    CHECK(second_head != std::vector<float>(one.begin(), one.begin() + n));
    CHECK(one == draw({}, 1, 0));
    CHECK(one != draw({}, 2, 0));
    CHECK(one != draw({{"seed", "1"}}, 1, 0));
    CHECK(one != draw({}, 1, 1));
    CHECK(draw({{"per", "token"}}, 1, 0) == draw({{"per", "token"}}, 1, 1));
    CHECK(draw({{"per", "layer"}}, 1, 0) != draw({{"per", "layer"}}, 1, 1));
    const float before = one[100]; // slots move, and a token keeps its random number
    positions.erase(positions.begin() + 50);
    positions.push_back(0);
    CHECK(draw({}, 1, 0)[99] == before);
}

TEST_CASE("compactor's sketch is normally distributed and depends only on the seed") {
    const TestModel model(1, 1, 1, 256);
    const LoadedPlugin plugin("compactor");
    const PolicyRun one(plugin, model, 1), same(plugin, model, 1), other(plugin, model, 2);
    const size_t n = size_t{256} * 48;
    REQUIRE(one.needs.projection_cols == 48);
    double sum = 0, square = 0, fourth = 0;
    for (size_t i = 0; i < n; ++i) {
        const double x = one.needs.projection[i] * std::sqrt(48.0);
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
    }
    CHECK(std::abs(sum / n) < 0.05);
    CHECK(std::abs(square / n - 1) < 0.07);
    CHECK(std::abs(fourth / n - 3) < 0.5);
    CHECK(std::equal(one.needs.projection, one.needs.projection + n, same.needs.projection));
    CHECK_FALSE(std::equal(one.needs.projection, one.needs.projection + n, other.needs.projection));
}
