#include "kv/rig.hpp"
#include "plugin/library.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// A policy or allocator of the build tree, with its parameters.
struct Loaded {
    explicit Loaded(const std::string &name, std::vector<GivenParam> given = {})
        : library(std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins" / (name + ".so"), {}),
          params(library.params().bind(given, {})) {}
    KvPlugin<keel_policy> policy() const {
        return {library.id(), &library.policy(), params.data(), params.size()};
    }
    KvPlugin<keel_allocator> allocator() const {
        return {library.id(), &library.allocator(), params.data(), params.size()};
    }
    PluginLibrary library;
    ParamValues params;
};

KvShape policies_shape() {
    KvShape shape = kv_shape(64, KEEL_DTYPE_F16);
    shape.heads = shape.kv_heads; // one query head for each KV head
    return shape;
}

struct PolicyRun {
    PolicyRun(const CacheConfig &config) : rig("reference", policies_shape()) {
        plan = std::make_unique<PolicySetup>(rig.executor(), policies_shape(),
                                             rig.executor().device().host(), config);
        manager = std::make_unique<CacheManager>(*plan, rig.executor().placement());
    }
    void prefill(int64_t n) {
        REQUIRE(manager->can_take(n, true));
        while (n > 0) {
            const int64_t chunk = manager->next_chunk(n, 20);
            n -= chunk;
            step(chunk, n > 0 ? StepKind::prefill_chunk : StepKind::prefill_end);
        }
    }
    void step(int64_t n, StepKind kind) {
        manager->before_append(n, kind);
        const auto next = manager->next_positions(n);
        const std::vector<int32_t> positions(next.begin(), next.end());
        const std::vector<int64_t> tokens(positions.begin(), positions.end());
        manager->append(n);
        rig.write(manager->cache(), tokens, positions);
        manager->after_step(kind);
    }
    std::vector<int32_t> positions() const {
        const auto p = manager->cache().positions(1, 1);
        return {p.begin(), p.end()};
    }
    Rig rig;
    std::unique_ptr<PolicySetup> plan;
    std::unique_ptr<CacheManager> manager;
};

GivenParam window_of(std::string text) {
    return {"window", std::move(text), GivenParam::Form::plain, {}};
}

std::vector<int32_t> prefix_and(int32_t prefix, int32_t begin, int32_t end) {
    std::vector<int32_t> out(static_cast<size_t>(prefix + end - begin));
    std::iota(out.begin(), out.begin() + prefix, 0);
    std::iota(out.begin() + prefix, out.end(), begin);
    return out;
}

} // namespace

TEST_CASE("none keeps every token and plans no op") {
    const Loaded none("none");
    CacheConfig config;
    config.policy = none.policy();
    PolicyRun run(config);
    CHECK(run.plan->keeps_all());
    CHECK(run.plan->ops().empty());
    run.prefill(50);
    for (int i = 0; i < 14; ++i) run.step(1, StepKind::decode);
    CHECK(run.positions() == prefix_and(0, 0, 64));
    CHECK_FALSE(run.manager->can_take(1, false));
}

TEST_CASE(
    "sliding_window keeps the protected prefix, and fills the budget with the newest tokens") {
    const Loaded window("sliding_window"), uniform("uniform");
    CacheConfig config;
    config.policy = window.policy();
    config.allocator = uniform.allocator();
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 24;
    config.protect_prefix = 4;
    PolicyRun run(config);
    run.prefill(300); // longer than the cache
    CHECK(run.positions() == prefix_and(4, 280, 300));
    for (int i = 0; i < 100; ++i) {
        run.step(1, StepKind::decode);
        REQUIRE(run.manager->cache().max_length() <= 27);
    }
    run.manager->evict();
    CHECK(run.positions() == prefix_and(4, 380, 400));
}

TEST_CASE("sliding_window with its own window needs no budget") {
    const Loaded window("sliding_window", {window_of("10")});
    CacheConfig config;
    config.policy = window.policy();
    config.protect_prefix = 4;
    config.slack = 0;
    {
        PolicyRun run(config);
        CHECK(run.plan->budget().at(0).tokens == 14);
        run.prefill(50);
        CHECK(run.positions() == prefix_and(4, 40, 50));
        run.step(1, StepKind::decode);
        CHECK(run.positions() == prefix_and(4, 41, 51));
    }
    // the budget triggers the eviction, and the kept slots fit both limits
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 30;
    PolicyRun wide(config);
    wide.prefill(30);
    CHECK(wide.positions() == prefix_and(0, 0, 30));
    wide.step(1, StepKind::decode);
    CHECK(wide.positions() == prefix_and(4, 21, 31));
    config.budget = 8;
    PolicyRun narrow(config);
    narrow.prefill(50);
    CHECK(narrow.positions() == prefix_and(4, 46, 50));

    const Loaded bare("sliding_window");
    config.policy = bare.policy();
    config.budget_unit = BudgetUnit::none;
    CHECK_THAT(error_text([&] { PolicyRun run(config); }),
               Contains("policy.budget") && Contains("sliding_window"));
    CHECK_THAT(error_text([&] { Loaded("sliding_window", {window_of("-1")}); }),
               Contains("window"));
}

TEST_CASE(
    "A policy with the same slots in all heads refuses an allocator that distinguishes heads") {
    const Loaded window("sliding_window");
    static uint32_t flags = 0;
    static const keel_allocator table = [] {
        keel_allocator t = {KEEL_HEADER(keel_allocator)};
        t.create = [](const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                      keel_allocator_needs *needs, keel_allocator_state **) -> keel_status {
            needs->flags = flags;
            return KEEL_OK;
        };
        t.destroy = [](keel_allocator_state *) {};
        t.allocate = [](keel_allocator_state *, const keel_allocator_input *,
                        int32_t *) -> keel_status { return KEEL_OK; };
        return t;
    }();
    CacheConfig config;
    config.policy = window.policy();
    config.allocator = {"odd", &table, nullptr, 0};
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 24;
    const auto refusal = [&](uint32_t wanted) {
        flags = wanted;
        return error_text([&] { PolicyRun run(config); });
    };
    CHECK_THAT(refusal(KEEL_ALLOCATOR_RAGGED), Contains("policy.allocator") && Contains("odd"));
    CHECK_THAT(refusal(KEEL_ALLOCATOR_BY_LAYER),
               Contains("policy.allocator") && Contains("odd") && Contains("different budgets"));
    CHECK_THAT(refusal(1u << 20), Contains("odd") && Contains("flags 0x100000"));
}

TEST_CASE("An allocator that gives too many slots, or fewer than are protected, is named") {
    const Loaded window("sliding_window");
    static int32_t first = 0, others = 0;
    static const keel_allocator table = [] {
        keel_allocator t = {KEEL_HEADER(keel_allocator)};
        t.create = [](const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                      keel_allocator_needs *,
                      keel_allocator_state **) -> keel_status { return KEEL_OK; };
        t.destroy = [](keel_allocator_state *) {};
        t.allocate = [](keel_allocator_state *, const keel_allocator_input *in,
                        int32_t *out) -> keel_status {
            for (uint32_t i = 0; i < in->layers * in->kv_heads; ++i)
                out[i] = i == 0 ? first : others;
            return KEEL_OK;
        };
        return t;
    }();
    CacheConfig config;
    config.policy = window.policy();
    config.allocator = {"odd", &table, nullptr, 0};
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 24;
    config.protect_prefix = 4;
    const auto message = [&](int32_t a, int32_t b) {
        first = a;
        others = b;
        PolicyRun run(config);
        return error_text([&] { run.prefill(60); }, ErrorKind::plugin);
    };
    CHECK_THAT(message(25, 24),
               Contains("allocator odd gave out 97 slots in total, but the budget has only 96"));
    CHECK_THAT(message(3, 24), Contains("allocator odd gave layer 0, head 0 a budget of 3 slots, "
                                        "but 4 slots of the head are protected"));
    CHECK_THAT(message(20, 24), Contains("allocator odd") && Contains("sliding_window"));
}
