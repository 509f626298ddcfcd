// Tests of policies and allocators together with the core: budgets compared with the formula of a
// paper, and the needed memory and time.
#include "kv/manager_run.hpp"
#include "kv/tapped_run.hpp"
#include "plugin/library.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <numeric>

using namespace keel;
using namespace keel::test;

namespace {

struct LoadedRecipe {
    explicit LoadedRecipe(const std::string &name, const std::vector<GivenParam> &given = {})
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

GivenParam given(const std::string &key, const std::string &value) {
    return {key, value, GivenParam::Form::plain, {}, {}};
}

KvShape recipe_shape(uint32_t layers = 5) {
    KvShape shape = kv_shape(256, KEEL_DTYPE_F32);
    shape.layers = layers;
    shape.head_dim = 16;
    return shape;
}

void prefill(TappedRun &run, int64_t left, int64_t chunk = 64) {
    while (left > 0) {
        const int64_t n = run.manager->next_chunk(left, chunk);
        left -= n;
        run.step(n, left > 0 ? StepKind::prefill_chunk : StepKind::prefill_end);
    }
}

// The formula of PyramidKV. F slots stay in any case. In addition, layer l has most - l * (most -
// least) / (L - 1) slots, rounded by the largest remainder method.
std::vector<int64_t> pyramid_formula(int64_t layers, int64_t budget, int64_t fixed, int64_t length,
                                     double beta) {
    const auto c = static_cast<double>(budget - fixed), room = static_cast<double>(length - fixed);
    double least = c / beta, most = 2 * c - least;
    if (most >= room) {
        most = room;
        least = 2 * c - most;
    }
    std::vector<int64_t> out;
    std::vector<double> rest;
    for (int64_t l = 0; l < layers; ++l) {
        const double exact =
            most - static_cast<double>(l) * (most - least) / static_cast<double>(layers - 1);
        out.push_back(static_cast<int64_t>(exact + 1e-9));
        rest.push_back(exact - static_cast<double>(out.back()));
    }
    int64_t left = (budget - fixed) * layers - std::accumulate(out.begin(), out.end(), int64_t{0});
    for (; left > 0; --left) {
        const auto best = std::max_element(rest.begin(), rest.end());
        ++out[static_cast<size_t>(best - rest.begin())];
        *best = -1;
    }
    for (int64_t &n : out) n += fixed;
    return out;
}

} // namespace

TEST_CASE("snapkv with pyramid is PyramidKV: the window counts once, whatever is protected") {
    const int64_t tokens = 200, budget = 64;
    for (const int64_t window : {1, 8, 16, 24}) {
        for (const int64_t prefix : {0, 4}) {
            for (const int64_t recent : {0, 12}) { // inside the window, or larger than the window
                INFO("window " << window << ", prefix " << prefix << ", recent " << recent);
                const LoadedRecipe snapkv("snapkv", {given("window", std::to_string(window))}),
                    pyramid("pyramid");
                CacheConfig config;
                config.policy = snapkv.policy();
                config.allocator = pyramid.allocator();
                config.budget_unit = BudgetUnit::tokens;
                config.budget = static_cast<double>(budget);
                config.protect_prefix = prefix;
                config.protect_recent = recent;
                TappedRun run("reference", recipe_shape(), config);
                prefill(run, tokens);
                const auto expected =
                    pyramid_formula(5, budget, prefix + std::max(window, recent), tokens, 20);
                REQUIRE(std::accumulate(expected.begin(), expected.end(), int64_t{0}) ==
                        5 * budget);
                REQUIRE(expected.front() > expected.back());
                for (uint32_t l = 0; l < 5; ++l) {
                    for (uint32_t h = 0; h < 2; ++h) {
                        CHECK(run.manager->cache().length(l, h) == expected[l]);
                        const auto kept = run.manager->cache().positions(l, h);
                        CHECK(kept[static_cast<size_t>(expected[l] - window)] == tokens - window);
                    }
                }
            }
        }
    }
}

TEST_CASE("Below the budget nothing is evicted, whatever an allocator would give") {
    const TempFolder folder;
    const std::string weights = folder.write("b.json", R"({"budgets": [1, 9, 9, 9, 9]})").string();
    const LoadedRecipe knorm("knorm"), file("file", {given("path", weights)});
    CacheConfig config;
    config.policy = knorm.policy();
    config.allocator = file.allocator();
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 60;
    TappedRun run("reference", recipe_shape(), config);
    prefill(run, 60); // the share of layer 0 would be 8
    CHECK(run.manager->evictions() == 0);
    CHECK(run.manager->cache().length(0, 0) == 60);
    TappedRun longer("reference", recipe_shape(), config);
    prefill(longer, 100);
    CHECK(longer.manager->evictions() == 1);
    CHECK(longer.manager->cache().length(0, 0) == 8);
}

TEST_CASE("The memory that policies need is counted, and estimated before it is allocated") {
    const KvShape shape = recipe_shape(3);
    struct Case {
        std::string policy;
        std::vector<GivenParam> params;
        uint64_t least; // number of bytes that are needed in any case
        std::string allocator = {};
    };
    const uint64_t rows = 3 * 2, f32 = 4;
    const std::vector<Case> cases = {
        {"none", {}, 0},
        {"sliding_window", {}, 0},
        {"random", {}, 0},
        {"snapkv", {given("window", "8")}, rows * 100 * f32},
        {"snapkv",
         {given("window", "8"), given("decode", "true")},
         3 * 8 * 4 * 16 * f32 + rows * 100 * f32},
        {"snapkv", {given("group", "none")}, 2 * rows * 100 * f32, "adaptive"},
        {"h2o", {}, rows * 100 * f32},
        {"tova", {}, rows * 100 * f32},
        {"keydiff", {}, rows * 100 * f32},
        {"knorm", {}, rows * 100 * f32},
        {"expected_attention", {}, 3 * 4 * 16 * 16 * f32},
        {"compactor", {given("chunk", "32")}, rows * 100 * f32},
    };
    for (const Case &c : cases) {
        INFO(c.policy << " " << c.allocator);
        const LoadedRecipe policy(c.policy, c.params);
        std::optional<LoadedRecipe> allocator;
        CacheConfig config;
        config.policy = policy.policy();
        if (!c.allocator.empty()) config.allocator = allocator.emplace(c.allocator).allocator();
        config.rope_frequencies = {1, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01};
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 40;
        TappedRun run("reference", shape, config);
        prefill(run, 100, 32);
        const uint64_t held = run.manager->policy_peak_bytes();
        CHECK(run.manager->policy_bytes() <= held);
        const uint64_t told = CacheManager::policy_bytes(*run.plan, shape.max_slots, 100);
        CHECK(held >= c.least);
        CHECK(told + told / 4 >= held); // a reused buffer may be larger by this share
        // The estimate is for steps of 256 tokens. The steps of this test have 32.
        const uint64_t steps = c.policy == "expected_attention" ? 224 * 4 * 16 * f32 : 0;
        CHECK(told <= 2 * held + 8192 + steps);
        if (c.policy == "none") CHECK(told == 0);
        if (c.policy == "none") CHECK(held == 0);
    }
}

TEST_CASE("Copies of rotated keys count as cache, and the other memory of the rotation as policy") {
    for (const keel_dtype dtype : {KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0}) {
        KvShape shape = recipe_shape(2);
        shape.head_dim = 32;
        shape.key_dtype = dtype;
        const LoadedRecipe policy("keydiff");
        CacheConfig config;
        config.policy = policy.policy();
        config.rope_frequencies = std::vector<double>(16, 0.2);
        config.positions = KvPositions::rerotated;
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 40;
        config.protect_prefix = 4;
        TappedRun run("reference", shape, config);
        prefill(run, 100, 32);
        const bool is_copied = dtype == KEEL_DTYPE_Q8_0;
        CHECK((run.manager->bytes_in_use() > run.manager->cache().bytes_in_use()) == is_copied);
        const uint64_t told = CacheManager::policy_bytes(*run.plan, shape.max_slots, 100);
        CHECK(told + told / 4 >= run.manager->policy_peak_bytes());
        CHECK(told <= 2 * run.manager->policy_peak_bytes());
        CHECK(run.manager->policy_bytes() > (is_copied ? 0 : 2 * 2 * 4 * 32 * 4));
    }
}

TEST_CASE("The time of an eviction includes the work for all layers, which is divided among the "
          "records") {
    // An allocator that takes a long time. It runs before any layer is decided.
    using Clock = std::chrono::steady_clock;
    static const keel_allocator slow = [] {
        keel_allocator t = {KEEL_HEADER(keel_allocator)};
        t.create = [](const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                      keel_allocator_needs *, keel_allocator_state **out) -> keel_status {
            static int nothing;
            *out = reinterpret_cast<keel_allocator_state *>(&nothing);
            return KEEL_OK;
        };
        t.destroy = [](keel_allocator_state *) {};
        t.allocate = [](keel_allocator_state *, const keel_allocator_input *in,
                        int32_t *budgets) -> keel_status {
            const auto until = Clock::now() + std::chrono::milliseconds(6);
            while (Clock::now() < until) {
            }
            std::fill_n(budgets, size_t{in->layers} * in->kv_heads,
                        static_cast<int32_t>(in->budget));
            return KEEL_OK;
        };
        return t;
    }();
    const LoadedRecipe policy("knorm");
    CacheConfig config;
    config.policy = policy.policy();
    config.allocator = {"slow", &slow, nullptr, 0};
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 40;
    ManagerRun run("reference", recipe_shape(3), config);
    const std::vector<EvictionRecord> records = run.step(60, StepKind::prefill_end);
    REQUIRE(records.size() == 3);
    double sum = 0;
    for (const EvictionRecord &r : records) {
        CHECK(r.microseconds >= 2000);
        sum += r.microseconds;
    }
    CHECK(sum >= 6000);
    CHECK(run.manager->eviction_us() == Approx(sum));
    run.manager->reset();
    CHECK(run.manager->eviction_us() == 0);
}
