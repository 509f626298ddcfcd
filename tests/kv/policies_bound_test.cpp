// What a cache holds at each step under the policies that act between the chunks of a prompt: budget and slack, never more than kv.max_mib.
#include "kv/manager_run.hpp"
#include "plugin/library.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <filesystem>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape bound_shape() {
    KvShape s;
    s.layers = 2;
    s.heads = s.kv_heads = 2;
    s.head_dim = 32;
    s.key_dtype = s.value_dtype = KEEL_DTYPE_F16;
    s.block_slots = 8;
    s.max_slots = 256;
    return s;
}

struct BlockwisePolicy {
    explicit BlockwisePolicy(const std::filesystem::path &file)
        : library(file, {}), params(library.params().bind({}, {})) {}
    KvPlugin<keel_policy> plugin() const {
        return {library.id(), &library.policy(), params.data(), params.size()};
    }
    PluginLibrary library;
    ParamValues params;
};

// Those whose scores need no attention: the rig has none.
std::vector<std::filesystem::path> key_policies() {
    std::vector<std::filesystem::path> found;
    for (const char *name : {"sliding_window", "random", "knorm", "keydiff"}) {
        const auto file =
            std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins" / (std::string(name) + ".so");
        if (std::filesystem::exists(file)) found.push_back(file);
    }
    return found;
}

} // namespace

TEST_CASE(
    "No step of a prompt or behind it leaves more than budget and slack, and kv.max_mib is never passed") {
    REQUIRE_FALSE(key_policies().empty());
    for (const auto &file : key_policies()) {
        const BlockwisePolicy policy(file);
        for (const int64_t slack : {0, 7}) {
            for (const BudgetUnit unit : {BudgetUnit::tokens, BudgetUnit::ratio, BudgetUnit::mib}) {
                INFO(file.filename() << " slack " << slack << " unit " << static_cast<int>(unit));
                KvShape shape = bound_shape();
                const uint64_t row = uint64_t{shape.layers} * shape.kv_heads * shape.block_bytes();
                shape.max_bytes = 12 * row; // 96 slots a head
                CacheConfig config;
                config.policy = policy.plugin();
                config.budget_unit = unit;
                config.budget = unit == BudgetUnit::tokens  ? 48
                                : unit == BudgetUnit::ratio ? 0.25
                                                            : static_cast<double>(6 * row) / 1048576;
                config.slack = slack;
                config.protect_prefix = 2;
                config.protect_recent = 4;
                ManagerRun run("reference", shape, config);
                if (!run.plan->acts_in_prefill()) {
                    WARN(policy.library.id()
                         << " does not act between chunks as it is configured by default");
                    continue;
                }
                const int64_t heads = int64_t{shape.layers} * shape.kv_heads;
                const auto check = [&] {
                    const BudgetNow now = run.plan->budget(run.manager->tokens_seen());
                    REQUIRE(run.held() <= (now.tokens + now.slack) * heads);
                    REQUIRE(run.manager->cache().bytes_in_use() <= shape.max_bytes);
                    REQUIRE(run.manager->cache().arena().peak_bytes() <= shape.max_bytes);
                };
                int64_t left = 200;
                std::string why;
                REQUIRE(run.manager->can_take(left, true, &why));
                while (left > 0) {
                    const int64_t n = run.manager->next_chunk(left, 24);
                    left -= n;
                    run.step(n, left > 0 ? StepKind::prefill_chunk : StepKind::prefill_end);
                    check();
                }
                for (int i = 0; i < 60; ++i) {
                    run.step(1, StepKind::decode);
                    check();
                }
            }
        }
    }
}

TEST_CASE(
    "A prompt that cannot fit before a one-shot policy acts is refused, naming those that would take it") {
    Script script = newest_are_best(KEEL_POLICY_PREFILL_ONLY);
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 48;
    int asked = 0;
    config.other_policies = [&] {
        ++asked;
        return std::string("keydiff, sliding_window");
    };
    ManagerRun run("reference", bound_shape(), config);
    std::string why;
    CHECK(run.manager->can_take(256, true, &why));
    CHECK(asked == 0);
    CHECK_FALSE(run.manager->can_take(257, true, &why));
    CHECK(asked == 1);
    CHECK_THAT(why, Contains("acts between chunks (keydiff, sliding_window)") && Contains("model.context"));
}
