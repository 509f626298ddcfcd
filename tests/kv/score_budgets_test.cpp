// Tests of budgets that are divided by scores, of slots that a policy always keeps, and of settings
// that are refused early.
#include "kv/evict/keep_lists.hpp"
#include "kv/manager_run.hpp"
#include "kv/scripted_allocator.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape scores_shape() { return kv_shape(96, KEEL_DTYPE_F32); }

CacheConfig token_budget(Script &script, double tokens) {
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = tokens;
    config.slack = 0;
    return config;
}

// Returns a policy whose scores contain layer, head and slot. The first `stay` slots always stay.
Script telling(keel_granularity granularity = KEEL_KEEP_HEAD_EQUAL, int32_t stay = 0) {
    Script script;
    script.needs.granularity = granularity;
    script.needs.output = KEEL_OUTPUT_SCORES;
    script.needs.flags = KEEL_POLICY_COMPARABLE;
    script.decide = [=](const keel_policy_input &in, keel_policy_decision &out) {
        for (uint32_t h = 0; h < (granularity == KEEL_KEEP_LAYER ? 1 : in.kv_heads); ++h) {
            CHECK(in.budgets[h] == 30);
            for (int32_t s = 0; s < in.lengths[h]; ++s) {
                out.scores[h * in.stride + s] =
                    static_cast<float>(1000 * in.layer + 100 * h + static_cast<uint32_t>(s));
                out.stay[h * in.stride + s] = s < stay ? 1 : 0;
            }
        }
        return KEEL_OK;
    };
    return script;
}

} // namespace

TEST_CASE("An allocator gets the scores of all layers and the protected slots, and sets the "
          "lengths of heads") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        Script script = telling(KEEL_KEEP_HEAD_EQUAL, 4);
        Sharer sharer;
        int calls = 0;
        sharer.allocate = [&](const keel_allocator_input &in, int32_t *budgets) {
            ++calls;
            REQUIRE(in.scores != nullptr);
            CHECK(in.budget == 30);
            // 2 in the prefix, which are among the 4 that stay, and 3 at the end
            CHECK(in.protected_slots == 7);
            for (uint32_t l = 0; l < 2; ++l) {
                for (uint32_t h = 0; h < 2; ++h) {
                    CHECK(in.lengths[l * 2 + h] ==
                          (calls == 1 ? 60 : std::vector<int>{11, 21, 41, 51}[l * 2 + h]));
                    CHECK(in.scores[l][h * in.stride + 9] ==
                          static_cast<float>(1000 * l + 100 * h + 9));
                    std::vector<uint8_t> mask(in.protected_masks[l] + h * in.stride,
                                              in.protected_masks[l] + h * in.stride +
                                                  in.lengths[l * 2 + h]);
                    CHECK(std::accumulate(mask.begin(), mask.end(), 0) == 7);
                    CHECK(mask[3] == 1);
                    CHECK(mask[4] == 0);
                    budgets[l * 2 + h] = std::vector<int32_t>{10, 20, 40, 50}[l * 2 + h];
                }
            }
        };
        CacheConfig config = token_budget(script, 30);
        config.protect_prefix = 2;
        config.protect_recent = 3;
        config.allocator = shared_by(sharer);
        ManagerRun run(device, scores_shape(), config);
        const auto full = [&] { return run.manager->cache().arena().bytes_in_use(); };
        run.step(60, StepKind::prefill_chunk);
        const uint64_t before = full();
        run.manager->after_step(StepKind::prefill_end);
        CHECK(calls == 1);
        CHECK(run.manager->cache().length(0, 0) == 10);
        CHECK(run.manager->cache().length(0, 1) == 20);
        CHECK(run.manager->cache().length(1, 0) == 40);
        CHECK(run.manager->cache().length(1, 1) == 50);
        const auto kept = run.manager->cache().positions(0, 0);
        CHECK(std::vector(kept.begin(), kept.end()) ==
              std::vector<int32_t>{0, 1, 2, 3, 54, 55, 56, 57, 58, 59});
        // Blocks of heads that became shorter are free: 2 + 3 + 5 + 7 of 4 * 8 are left.
        CHECK(full() == before / 32 * 17);
        run.step(1, StepKind::decode); // in total one slot above the budget
        CHECK(calls == 2);
        CHECK(run.held() == 120);
    }
}

TEST_CASE("An allocator gets a layer's single row of scores for each head") {
    Script script = telling(KEEL_KEEP_LAYER, 3);
    Sharer sharer;
    sharer.flags = 0;
    sharer.allocate = [&](const keel_allocator_input &in, int32_t *budgets) {
        for (uint32_t l = 0; l < 2; ++l) {
            CHECK(in.scores[l][in.stride + 5] == static_cast<float>(1000 * l + 5));
            CHECK(in.protected_masks[l][in.stride + 2] == 1);
            budgets[l * 2] = budgets[l * 2 + 1] = l == 0 ? 10 : 50;
        }
    };
    CacheConfig config = token_budget(script, 30);
    config.allocator = shared_by(sharer);
    ManagerRun run("reference", scores_shape(), config);
    run.step(60, StepKind::prefill_end);
    CHECK(run.manager->cache().length(0, 1) == 10);
    CHECK(run.manager->cache().length(1, 0) == 50);
}

TEST_CASE("Allocators whose answer would break a rule are refused") {
    Script script = telling();
    Sharer sharer;
    const auto refusal = [&](int32_t first, int32_t others) {
        sharer.allocate = [=](const keel_allocator_input &, int32_t *budgets) {
            budgets[0] = first;
            budgets[1] = budgets[2] = budgets[3] = others;
        };
        CacheConfig config = token_budget(script, 30);
        config.protect_recent = 5;
        config.allocator = shared_by(sharer);
        ManagerRun run("reference", scores_shape(), config);
        run.step(60, StepKind::prefill_chunk);
        const std::string text =
            error_text([&] { run.manager->after_step(StepKind::prefill_end); }, ErrorKind::plugin);
        CHECK(run.held() == 240); // nothing was evicted
        return text;
    };
    CHECK_THAT(refusal(31, 30),
               Contains("sharer gave out 121 slots in total, but the budget has only 120"));
    CHECK_THAT(
        refusal(4, 30),
        Contains(
            "gave layer 0, head 0 a budget of 4 slots, but 5 slots of the head are protected"));
}

TEST_CASE("Impossible pairs of policy and allocator are refused by name in the plan") {
    const auto refusal = [](Script &script, Sharer &sharer, CacheConfig config = {}) {
        config.policy = scripted(script);
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 30;
        config.allocator = shared_by(sharer);
        return error_text([&] { ManagerRun("reference", scores_shape(), config); },
                          ErrorKind::input);
    };
    Sharer sharer;
    Script script = telling(KEEL_KEEP_TOKEN);
    sharer.flags = 0;
    CHECK_THAT(refusal(script, sharer),
               Contains("sharer divides the budget by scores") && Contains("for all layers"));
    script = telling();
    script.needs.output = KEEL_OUTPUT_KEEP;
    CHECK_THAT(refusal(script, sharer), Contains("policy scripted gives keep-lists"));
    script = telling();
    script.needs.flags = 0;
    sharer.flags = KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_COMPARES;
    CHECK_THAT(refusal(script, sharer), Contains("policy.allocator: allocator sharer") &&
                                            Contains("are not comparable across heads") &&
                                            Contains("set policy.allocator.params.normalize"));
    sharer.needs = 1 << 7;
    CHECK_THAT(refusal(script, sharer), Contains("sharer needs the inputs 0x80"));
}

TEST_CASE("Slots that a policy always keeps fill the budget first, and the newest of them win") {
    const std::vector<float> scores = {9, 8, 7, 6, 5, 4, 3, 2};
    const std::vector<uint8_t> mask = {1, 0, 0, 0, 0, 0, 0, 0}, stay = {1, 0, 0, 0, 1, 0, 1, 1};
    std::vector<int32_t> order, keep;
    const auto kept = [&](int64_t budget) {
        keep_best({8, budget, mask.data(), stay.data()}, scores.data(), "p", order, keep);
        return keep;
    };
    CHECK(kept(8).size() == 8);
    CHECK(kept(6) == std::vector<int32_t>{0, 1, 2, 4, 6, 7});
    CHECK(kept(4) == std::vector<int32_t>{0, 4, 6, 7});
    CHECK(kept(3) == std::vector<int32_t>{0, 6, 7});
    CHECK(kept(1) == std::vector<int32_t>{0});
}

TEST_CASE("A budget below the policy's minimum is refused with the key and the number") {
    Script script = telling();
    script.needs.least_budget = 40;
    CHECK_THAT(
        error_text([&] { ManagerRun("reference", scores_shape(), token_budget(script, 39)); },
                   ErrorKind::input),
        Contains("policy.budget.tokens: policy scripted needs a budget of at least 40 slots") &&
            Contains("found 39"));
    CacheConfig config = token_budget(script, 0.1);
    config.budget_unit = BudgetUnit::ratio;
    ManagerRun run("reference", scores_shape(), config);
    CHECK(run.plan->budget().at(60).tokens == 40); // the budget of a ratio does not shrink
    CHECK(run.plan->budget().at(1000).tokens == 100);
}

TEST_CASE("A budget that protected slots and the policy's own slots fill is refused") {
    Script script = telling();
    script.needs.needs = KEEL_NEED_WINDOW_SCORES;
    script.needs.window = 16;
    script.needs.reduce_queries = script.needs.reduce_group = KEEL_REDUCE_MEAN;
    script.needs.least_budget = 17; // the 16 newest slots and one more
    CacheConfig config = token_budget(script, 46);
    config.protect_prefix = 30;
    CHECK_THAT(
        error_text([&] { ManagerRun("reference", scores_shape(), config); }, ErrorKind::input),
        Contains("policy.budget.tokens: a budget of 46 slots leaves no slot that policy scripted "
                 "can choose: 30 slots are protected") &&
            Contains("46 slots are taken; raise the budget to at least 47"));
    config.budget = 47;
    CHECK(ManagerRun("reference", scores_shape(), config).plan->budget().at(60).tokens == 47);
    config.protect_recent = 10; // these slots are among the 16 newest
    CHECK(ManagerRun("reference", scores_shape(), config).plan->budget().at(60).tokens == 47);
}

TEST_CASE("Scores follow a model's soft-cap and window") {
    Script script = telling();
    script.needs.needs = KEEL_NEED_WINDOW_SCORES;
    script.needs.window = 8;
    script.needs.reduce_queries = script.needs.reduce_group = KEEL_REDUCE_MEAN;
    CacheConfig config = token_budget(script, 30);
    config.attention_window = 64;
    config.attention_softcap = 50;
    const ManagerRun run("reference", scores_shape(), config);
    CHECK(run.plan->logit_rules().window == 64);
    CHECK(run.plan->logit_rules().softcap == 50);
    keel_attention_scores_args args = {KEEL_HEADER(keel_attention_scores_args)};
    const Tensor positions = Tensor::shape(KEEL_DTYPE_I32, {8});
    run.plan->logit_rules().add_to(args, positions.c());
    CHECK(args.features == (KEEL_SCORES_SOFTCAP | KEEL_SCORES_WINDOW));
    CHECK(args.q_positions == positions.c());
}

TEST_CASE("Needs that contradict each other are refused by name") {
    const auto refusal = [](const std::function<void(keel_policy_needs &)> &change) {
        Script script = telling();
        change(script.needs);
        return error_text(
            [&] { ManagerRun("reference", scores_shape(), token_budget(script, 30)); },
            ErrorKind::plugin);
    };
    CHECK_THAT(refusal([](keel_policy_needs &n) { n.needs = KEEL_NEED_WINDOW_SCORES; }),
               Contains("window_scores of 0 queries"));
    CHECK_THAT(refusal([](keel_policy_needs &n) {
                   n.needs = KEEL_NEED_WINDOW_SCORES | KEEL_NEED_RUNNING_SCORES;
                   n.window = 4;
               }),
               Contains("another kind of scores"));
    CHECK_THAT(refusal([](keel_policy_needs &n) {
                   n.needs = KEEL_NEED_RUNNING_SCORES;
                   n.reduce_queries = KEEL_REDUCE_MEAN;
               }),
               Contains("mean over queries"));
    CHECK_THAT(refusal([](keel_policy_needs &n) { n.needs = KEEL_NEED_UNROTATED; }),
               Contains("before RoPE"));
    CHECK_THAT(refusal([](keel_policy_needs &n) { n.needs = KEEL_NEED_KEY_PROJECT; }),
               Contains("and no matrix"));
    CHECK_THAT(refusal([](keel_policy_needs &n) { n.needs = KEEL_NEED_CHUNK_SCORES; }),
               Contains("pieces of 0 tokens"));
    CHECK_THAT(refusal([](keel_policy_needs &n) {
                   n.needs = KEEL_NEED_REPLAY;
                   n.replay_chunk = 9;
               }),
               Contains("does not set the flag KEEL_POLICY_PREFILL_ONLY"));
}
