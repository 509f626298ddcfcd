// Tests of the number of slots at each step, for policies that act between the chunks of a prompt:
// at most budget and slack, and never more than kv.max_mib.
#include "kv/manager_run.hpp"
#include "kv/tapped_run.hpp"
#include "plugin/library.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <memory>
#include <optional>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

KvShape bound_shape() {
    KvShape shape = kv_shape(256, KEEL_DTYPE_F16);
    shape.heads = shape.kv_heads; // one query head for each KV head
    return shape;
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

// The policies whose scores need no attention, because the rig does not run attention.
std::vector<std::filesystem::path> key_policies() {
    std::vector<std::filesystem::path> found;
    for (const char *name : {"sliding_window", "random", "knorm", "keydiff"}) {
        const auto file = std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins" /
                          (std::string(name) + ".so");
        if (std::filesystem::exists(file)) found.push_back(file);
    }
    return found;
}

} // namespace

TEST_CASE("In a prompt and after it, no step exceeds budget plus slack or kv.max_mib") {
    REQUIRE_FALSE(key_policies().empty());
    for (const auto &file : key_policies()) {
        const BlockwisePolicy policy(file);
        for (const int64_t slack : {0, 7}) {
            for (const BudgetUnit unit : {BudgetUnit::tokens, BudgetUnit::ratio, BudgetUnit::mib}) {
                INFO(file.filename() << " slack " << slack << " unit " << static_cast<int>(unit));
                KvShape shape = bound_shape();
                const uint64_t row = uint64_t{shape.layers} * shape.kv_heads * shape.block_bytes();
                shape.max_bytes = 12 * row; // 96 slots for each head
                CacheConfig config;
                config.policy = policy.plugin();
                config.budget_unit = unit;
                config.budget = unit == BudgetUnit::tokens ? 48
                                : unit == BudgetUnit::ratio
                                    ? 0.25
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
                    const BudgetNow now = run.plan->budget().at(run.manager->tokens_seen());
                    REQUIRE(run.held() <= (now.tokens + now.slack) * heads);
                    REQUIRE(run.manager->cache().bytes_in_use() <= shape.max_bytes);
                    if (unit == BudgetUnit::mib) REQUIRE(run.manager->bytes_in_use() <= 6 * row);
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

namespace {

// A combination of policy, allocator, and positions.
struct MibCase {
    const char *what;
    uint32_t flags;        // flags of a scripted policy
    const char *allocator; // NULL: none
    keel_dtype keys = KEEL_DTYPE_F16;
    KvPositions positions = KvPositions::absolute;
    std::optional<int64_t> every_n = std::nullopt; // replaces the trigger `budget`
};

// Returns a policy whose scores differ by layer and head, so that allocators that use scores give
// unequal shares.
Script uneven_scores(uint32_t flags) {
    Script script = newest_are_best(flags | KEEL_POLICY_COMPARABLE);
    script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            for (int32_t s = 0; s < in.lengths[h]; ++s)
                out.scores[h * in.stride + s] =
                    static_cast<float>((s * 7919 + 31 * static_cast<int>(in.layer)) % 101) *
                    static_cast<float>(h == 0 ? 1 + in.layer : 5);
        }
        return KEEL_OK;
    };
    return script;
}

} // namespace

TEST_CASE(
    "A budget in MiB includes slack, a step's tokens and unequal heads, and is never exceeded") {
    const std::vector<MibCase> cases = {
        {"between chunks", KEEL_POLICY_BLOCKWISE, nullptr},
        {"between chunks, heads of unequal length", KEEL_POLICY_BLOCKWISE, "adaptive"},
        {"between chunks, layers of unequal length", KEEL_POLICY_BLOCKWISE, "pyramid"},
        {"between chunks, quantized keys that move", KEEL_POLICY_BLOCKWISE, nullptr,
         KEEL_DTYPE_Q8_0, KvPositions::rerotated},
        {"between chunks, quantized keys that move, layers of unequal length",
         KEEL_POLICY_BLOCKWISE, "pyramid", KEEL_DTYPE_Q4_0, KvPositions::rerotated},
        {"at the prompt's end and during decode", 0, nullptr},
        {"at the prompt's end and during decode, heads of unequal length", 0, "adaptive"},
        {"every 5 tokens", 0, nullptr, KEEL_DTYPE_F16, KvPositions::absolute, 5},
        {"once", KEEL_POLICY_PREFILL_ONLY, "adaptive"},
    };
    for (const MibCase &c : cases) {
        for (const std::optional<int64_t> slack :
             {std::optional<int64_t>{}, std::optional<int64_t>{0}, std::optional<int64_t>{7}}) {
            INFO(c.what << ", slack " << slack.value_or(-1));
            KvShape shape = bound_shape();
            shape.layers = 3;
            shape.heads = 4;
            shape.key_dtype = c.keys;
            shape.max_slots = 512;
            const bool is_copied =
                keel_dtype_block(c.keys) > 1 && c.positions != KvPositions::absolute;
            const uint64_t row = uint64_t{shape.layers} * shape.kv_heads *
                                 (shape.block_bytes() + (is_copied ? shape.key_block_bytes() : 0));
            Script script = uneven_scores(c.flags);
            std::unique_ptr<PluginLibrary> library;
            std::optional<ParamValues> params;
            CacheConfig config;
            config.policy = scripted(script);
            if (c.allocator != nullptr) {
                library = std::make_unique<PluginLibrary>(std::filesystem::path(KEEL_BINARY_DIR) /
                                                              "lib/keel/plugins" /
                                                              (std::string(c.allocator) + ".so"),
                                                          SourceLocation{});
                params = library->params().bind({}, {});
                config.allocator = {library->id(), &library->allocator(), params->data(),
                                    params->size()};
            }
            config.positions = c.positions;
            if (c.positions != KvPositions::absolute)
                config.rope_frequencies = std::vector<double>(16, 0.1);
            config.budget_unit = BudgetUnit::mib;
            config.budget = 10.6 * static_cast<double>(row) / 1048576;
            config.slack = slack;
            config.at_budget = !c.every_n;
            config.every_n = c.every_n;
            config.protect_prefix = 2;
            config.protect_recent = 4;
            ManagerRun run("reference", shape, config);
            const auto limit = static_cast<uint64_t>(config.budget * 1048576);
            uint64_t most = 0;
            const auto check = [&](const char *when) {
                INFO(when << " after " << run.manager->tokens_seen() << " tokens");
                REQUIRE(run.manager->bytes_in_use() <= limit);
                most = std::max(most, run.manager->bytes_in_use());
            };
            const bool in_prompt = (c.flags & KEEL_POLICY_BLOCKWISE) != 0;
            for (int64_t left = 300; left > 0;) {
                const int64_t n = run.manager->next_chunk(left, 64);
                left -= n;
                // The largest number of slots is between append and the end of the step.
                run.step(n, left > 0 ? StepKind::prefill_chunk : StepKind::prefill_end);
                if (in_prompt || left == 0) check("prompt");
            }
            REQUIRE(run.manager->evictions() > 0);
            if (in_prompt) CHECK(run.manager->cache().arena().peak_bytes() <= limit);
            for (int i = 0; i < 60 && (c.flags & KEEL_POLICY_PREFILL_ONLY) == 0; ++i) {
                const auto positions = run.manager->next_positions(1);
                run.manager->before_append(1, StepKind::decode);
                run.manager->append(1);
                check("within a step");
                const std::vector<int64_t> tokens = {run.manager->tokens_seen() - 1};
                const std::vector<int32_t> at(positions.begin(), positions.end());
                run.rig.write(run.manager->cache(), tokens, at);
                run.manager->after_step(StepKind::decode);
                check("decode");
            }
            CHECK(most >= limit / 2); // at least half of the limit is used
        }
    }
}

TEST_CASE("Copies of quantized keys under a budget in MiB are refused, because it does not limit "
          "the longest head") {
    Script script = uneven_scores(0);
    KvShape shape = bound_shape();
    shape.key_dtype = KEEL_DTYPE_Q8_0;
    CacheConfig config;
    config.policy = scripted(script);
    const PluginLibrary library(
        std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins/adaptive.so", {});
    const ParamValues params = library.params().bind({}, {});
    config.allocator = {library.id(), &library.allocator(), params.data(), params.size()};
    config.budget_unit = BudgetUnit::mib;
    config.budget = 1;
    config.positions = KvPositions::rerotated;
    config.rope_frequencies = std::vector<double>(16, 0.1);
    CHECK_THAT(error_text([&] { ManagerRun("reference", shape, config); }, ErrorKind::input),
               Contains("policy.budget.mib") && Contains("adaptive") &&
                   Contains("policy.budget.tokens"));
}

TEST_CASE("A prompt that does not fit before a one-shot policy acts is refused") {
    Script script = newest_are_best(KEEL_POLICY_PREFILL_ONLY);
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 48;
    ManagerRun run("reference", bound_shape(), config);
    std::string why;
    CHECK(run.manager->can_take(256, true, &why));
    CHECK_FALSE(run.manager->can_take(257, true, &why));
    CHECK_THAT(why, Contains("evicts between the chunks") && Contains("model.context"));
}

TEST_CASE(
    "kv.max_mib and a budget in MiB limit the cache and the policy's state, if the state counts") {
    const std::filesystem::path plugins =
        std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins";
    for (const std::string name : {"h2o", "snapkv", "tova", "expected_attention", "compactor"}) {
        for (const bool in_mib : {false, true}) {
            INFO(name << (in_mib ? " policy.budget.mib" : " kv.max_mib"));
            const PluginLibrary library(plugins / (name + ".so"), {});
            const ParamValues params = library.params().bind({}, {});
            KvShape shape = kv_shape(512, KEEL_DTYPE_F16);
            const uint64_t row = uint64_t{shape.layers} * shape.kv_heads * shape.block_bytes();
            // The cache alone would reach the limit with 400 tokens.
            const uint64_t limit = 50 * row;
            CacheConfig config;
            config.policy = {library.id(), &library.policy(), params.data(), params.size()};
            config.rope_frequencies = std::vector<double>(16, 0.1);
            config.count_policy_state = true;
            config.at_budget = false;
            config.budget_unit = in_mib ? BudgetUnit::mib : BudgetUnit::tokens;
            config.budget = in_mib ? static_cast<double>(limit) / 1048576 : 40;
            if (!in_mib) shape.max_bytes = limit;
            TappedRun run("reference", shape, config);
            int64_t taken = 0;
            while (run.manager->can_take(taken + 8, true) && taken < 440) taken += 8;
            CHECK(taken >= 40);
            if (!in_mib) CHECK(taken < 400);
            const auto held = [&] {
                return run.manager->bytes_in_use() + run.manager->policy_peak_bytes();
            };
            for (int64_t left = taken; left > 0;) {
                const int64_t n = run.manager->next_chunk(left, 64);
                left -= n;
                run.step(n, left > 0 ? StepKind::prefill_chunk : StepKind::prefill_end);
                if (!in_mib) CHECK(held() <= limit);
            }
            CHECK(run.manager->evictions() == 1);
            CHECK(run.manager->bytes_in_use() + run.manager->policy_bytes() <= limit);
            if (in_mib) CHECK(run.manager->bytes_in_use() < limit);
        }
    }
}

TEST_CASE("A kv.max_mib that the policy's state alone exceeds is refused with the numbers") {
    const PluginLibrary library(
        std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins/expected_attention.so", {});
    const ParamValues params = library.params().bind({}, {});
    KvShape shape = kv_shape(512, KEEL_DTYPE_F16);
    CacheConfig config;
    config.policy = {library.id(), &library.policy(), params.data(), params.size()};
    config.rope_frequencies = std::vector<double>(16, 0.1);
    config.count_policy_state = true;
    config.budget_unit = BudgetUnit::mib;
    config.budget = 0.04;
    CHECK_THAT(error_text([&] { ManagerRun("reference", shape, config); }, ErrorKind::input),
               Contains("policy.budget.mib: 0.040 MiB") && Contains("expected_attention") &&
                   Contains("kv.count_policy_state to false"));
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 6;
    shape.max_bytes = 40000;
    CHECK_THAT(error_text([&] { ManagerRun("reference", shape, config); }, ErrorKind::input),
               Contains("kv.max_mib: 0.038 MiB") && Contains("raise the limit to"));
    shape.max_bytes = 200000;
    ManagerRun run("reference", shape, config);
    std::string why;
    CHECK_FALSE(run.manager->caches().main().fits(400, &why));
    CHECK_THAT(why, Contains("MiB are set aside for the policy's state (kv.count_policy_state)"));
}
