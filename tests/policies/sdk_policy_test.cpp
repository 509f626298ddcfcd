// Tests of sdk_policy.hpp: exceptions, older hosts and states.
#include "policies/plugin_rig.hpp"

#include <keel/sdk_policy.hpp>

#include <numeric>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

using namespace keel::sdk;

enum class Mood { good, failure, no_memory, anything, asks_for_keys };
Mood mood = Mood::good;
int alive = 0;

class Moody {
  public:
    static constexpr PluginInfo info = {"moody", "1.0.0", "Tests", "MIT", "A class of a test."};
    static constexpr keel_param_spec params[] = {KEEL_INT_PARAM("a", "1", 0, 9, "one"),
                                                 KEEL_BOOL_PARAM("b", "true", "two")};

    Moody(const Setup &setup, keel_policy_needs &needs) : seed_(setup.seed) {
        if (mood == Mood::failure) throw Failure(KEEL_E_UNSUPPORTED, "not %d today", 7);
        if (mood == Mood::no_memory) throw std::bad_alloc();
        if (mood == Mood::anything) throw 3;
        needs.needs = KEEL_NEED_KEY_NORMS;
        needs.least_budget = setup.geometry.layers == 99 ? 5 : 0;
        ++alive;
    }
    Moody(const Moody &other) : seed_(other.seed_), count_(other.count_) { ++alive; }
    ~Moody() { --alive; }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        if (mood == Mood::failure) throw Failure(KEEL_E_INTERNAL, "no idea");
        if (mood == Mood::asks_for_keys) in.keys(0, 4);
        out.scores(0)[0] = static_cast<float>(++count_);
        out.stay(0, 0, 1);
    }
    void truncate(int64_t position) { count_ = static_cast<int>(position); }
    std::vector<unsigned char> save() const { return {static_cast<unsigned char>(count_), 7}; }
    void load(const unsigned char *data, size_t size) {
        if (size != 2 || data[1] != 7)
            throw Failure(KEEL_E_INVALID_ARG, "%zu bytes of something else", size);
        count_ = data[0];
    }

  private:
    uint64_t seed_;
    int count_ = 0;
};

struct Bare {
    static constexpr PluginInfo info = {"bare", "1.0.0", "Tests", "MIT",
                                        "The least that a policy has."};
    Bare(const Setup &, keel_policy_needs &) {}
    void decide(const PolicyInput &, PolicyDecision &) {}
};

struct Lazy : KeepsAll {
    using KeepsAll::KeepsAll;
    static constexpr PluginInfo info = {"lazy", "1.0.0", "Tests", "MIT", "Keeps all."};
};

struct Rig {
    Rig() { mood = Mood::good; }
    keel_status create(uint32_t needs_size = sizeof(keel_policy_needs)) {
        needs.h.struct_size = needs_size;
        return table.create(host.table(), &model.geometry, nullptr, 0, 1, &needs, &state);
    }
    keel_status decide() {
        keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision), &score, nullptr,
                                         nullptr, has_stay ? &stay : nullptr};
        input.kv_heads = input.heads = 1;
        input.stride = 1;
        input.lengths = input.budgets = &one;
        input.protected_mask = &none;
        return table.decide(state, &input, &decision);
    }
    const keel_policy &table = policy_table<Moody>();
    HostServices host{1};
    TestModel model{2, 2, 1, 4};
    keel_policy_needs needs = {KEEL_HEADER(keel_policy_needs)};
    keel_policy_input input = {KEEL_HEADER(keel_policy_input)};
    keel_policy_state *state = nullptr;
    float score = -1;
    uint8_t stay = 0, none = 0;
    bool has_stay = true;
    int32_t one = 1;
};

} // namespace

TEST_CASE("A policy class becomes a descriptor and a table with the functions that it has") {
    const keel_plugin &plugin = *policy_plugin<Moody>();
    CHECK(&plugin == policy_plugin<Moody>());
    CHECK(std::string(plugin.id) == "moody");
    CHECK(plugin.kind == KEEL_PLUGIN_POLICY);
    CHECK(plugin.n_params == 2);
    CHECK(std::string(plugin.params[1]->key) == "b");
    CHECK(plugin.vtable == &policy_table<Moody>());
    CHECK(policy_table<Moody>().reset == nullptr);
    CHECK(policy_table<Moody>().truncate != nullptr);
    CHECK(policy_table<Moody>().fork != nullptr);
    CHECK(policy_table<Bare>().fork == nullptr);
    CHECK(policy_table<Bare>().save == nullptr);
    CHECK(policy_table<Bare>().truncate == nullptr);
    CHECK(policy_plugin<Bare>()->n_params == 0);
    CHECK(policy_plugin<Bare>()->params == nullptr);
}

TEST_CASE("No exception leaves a policy class, and its text reaches the host") {
    Rig rig;
    const auto create_in = [&](Mood now) {
        mood = now;
        HostServices::drop_error();
        const keel_status status = rig.create();
        return std::make_pair(status, PolicyRun::error());
    };
    CHECK(create_in(Mood::failure) ==
          std::make_pair(keel_status{KEEL_E_UNSUPPORTED}, std::string("not 7 today")));
    CHECK(create_in(Mood::no_memory).first == KEEL_E_OUT_OF_MEMORY);
    CHECK(create_in(Mood::anything).first == KEEL_E_INTERNAL);
    CHECK(alive == 0);
    REQUIRE(create_in(Mood::good).first == KEEL_OK);
    REQUIRE(rig.decide() == KEEL_OK);
    CHECK(rig.score == 1);
    CHECK(rig.stay == 1);
    mood = Mood::failure;
    HostServices::drop_error();
    CHECK(rig.decide() == KEEL_E_INTERNAL);
    CHECK(PolicyRun::error() == "no idea");
    mood = Mood::asks_for_keys;
    CHECK(rig.decide() == KEEL_E_INVALID_ARG);
    CHECK(PolicyRun::error() == "the host passed no array keys; request it in the policy's needs");
    rig.table.destroy(rig.state);
    rig.table.destroy(nullptr);
    CHECK(alive == 0);
}

TEST_CASE("An older host is refused only if it would miss a request of the policy") {
    Rig rig;
    REQUIRE(rig.create(KEEL_PREFIX(keel_policy_needs, projection)) == KEEL_OK);
    CHECK(rig.needs.needs == KEEL_NEED_KEY_NORMS);
    rig.has_stay = false;
    HostServices::drop_error();
    CHECK(rig.decide() == KEEL_E_VERSION);
    CHECK_THAT(PolicyRun::error(), Contains("older than this policy"));
    rig.table.destroy(rig.state);
    rig.model.geometry.layers = 99; // with this number of layers the policy has a least budget
    HostServices::drop_error();
    CHECK(rig.create(KEEL_PREFIX(keel_policy_needs, projection)) == KEEL_E_VERSION);
    CHECK_THAT(PolicyRun::error(), Contains("this Keel is too old for the plugin"));
    CHECK(alive == 0);
    rig.model.geometry.h.abi_version = (KEEL_ABI_MAJOR + 1) << 16;
    CHECK(rig.create() == KEEL_E_VERSION);
    HostServices::drop_error();
}

TEST_CASE("A policy that sets no granularity and no output scores the slots of each KV head") {
    Rig rig;
    REQUIRE(rig.create() == KEEL_OK);
    CHECK(rig.needs.granularity == KEEL_KEEP_HEAD_EQUAL);
    CHECK(rig.needs.output == KEEL_OUTPUT_SCORES);
    rig.table.destroy(rig.state);
}

TEST_CASE("A policy that derives from KeepsAll never evicts") {
    Rig rig;
    const keel_policy &table = policy_table<Lazy>();
    REQUIRE(table.create(rig.host.table(), &rig.model.geometry, nullptr, 0, 1, &rig.needs,
                         &rig.state) == KEEL_OK);
    CHECK(rig.needs.granularity == KEEL_KEEP_TOKEN);
    CHECK(rig.needs.output == KEEL_OUTPUT_KEEP);
    CHECK(rig.needs.flags == KEEL_POLICY_KEEPS_ALL);
    const int32_t length = 3, budget = 1;
    const uint8_t mask[3] = {};
    rig.input.kv_heads = rig.input.heads = 1;
    rig.input.stride = 3;
    rig.input.lengths = &length;
    rig.input.budgets = &budget;
    rig.input.protected_mask = mask;
    int32_t slots[3] = {-1, -1, -1}, kept = 0;
    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision), nullptr, slots, &kept,
                                     nullptr};
    REQUIRE(table.decide(rig.state, &rig.input, &decision) == KEEL_OK);
    CHECK(kept == 3);
    CHECK((slots[0] == 0 && slots[1] == 1 && slots[2] == 2));
    table.destroy(rig.state);
}

TEST_CASE("The oldest and newest slots that stay are limited to the row's length") {
    uint8_t stay[8] = {};
    const int32_t lengths[2] = {4, 2};
    keel_policy_decision raw = {KEEL_HEADER(keel_policy_decision), nullptr, nullptr, nullptr, stay};
    PolicyDecision out(&raw, 4, lengths);
    out.stay_first(0, 1);
    out.stay_last(0, 2);
    out.stay_last(1, 9);
    out.stay_first(1, 0);
    CHECK(std::vector<int>(stay, stay + 8) == std::vector<int>{1, 0, 1, 1, 1, 1, 0, 0});
    PolicyDecision without_lengths(&raw, 4);
    CHECK_THROWS_AS(without_lengths.stay_first(0, 1), Failure);
}

TEST_CASE("A state is forked by copy, and saved and loaded as bytes") {
    Rig rig;
    REQUIRE(rig.create() == KEEL_OK);
    rig.decide();
    rig.decide();
    keel_policy_state *copy = nullptr;
    REQUIRE(rig.table.fork(rig.state, &copy) == KEEL_OK);
    CHECK(alive == 2);
    uint64_t size = 0;
    REQUIRE(rig.table.save(rig.state, nullptr, &size) == KEEL_OK);
    CHECK(size == 2);
    unsigned char bytes[2] = {};
    REQUIRE(rig.table.save(rig.state, bytes, &size) == KEEL_OK);
    CHECK(bytes[0] == 2);
    uint64_t small = 1;
    HostServices::drop_error();
    CHECK(rig.table.save(rig.state, bytes, &small) == KEEL_E_INVALID_ARG);
    CHECK(rig.table.truncate(rig.state, 40) == KEEL_OK);
    rig.decide();
    CHECK(rig.score == 41);
    CHECK(rig.table.load(rig.state, bytes, 2) == KEEL_OK);
    rig.decide();
    CHECK(rig.score == 3);
    HostServices::drop_error();
    CHECK(rig.table.load(rig.state, bytes, 1) == KEEL_E_INVALID_ARG);
    CHECK(PolicyRun::error() == "1 bytes of something else");
    std::swap(rig.state, copy);
    rig.decide();
    CHECK(rig.score == 3); // the copy had seen two steps
    rig.table.destroy(copy);
    rig.table.destroy(rig.state);
    CHECK(alive == 0);
}

TEST_CASE("Shares add up to the total, within their bounds, and are the same each time") {
    using Shares = std::vector<int64_t>;
    const auto free = [](size_t n) { return Shares(n, 1 << 30); };
    CHECK(share_out({1, 1, 1}, Shares(3, 0), free(3), 10) == Shares{4, 3, 3});
    CHECK(share_out({1, 2, 3}, Shares(3, 0), free(3), 6) == Shares{1, 2, 3});
    CHECK(share_out({1, 2, 3}, Shares(3, 2), free(3), 12) == Shares{2, 4, 6});
    CHECK(share_out({1, 0, 0}, Shares(3, 1), Shares{4, 9, 9}, 9) == Shares{4, 3, 2});
    CHECK(share_out({0, 0}, Shares(2, 0), free(2), 5) == Shares{3, 2});
    // there are no more slots to give
    CHECK(share_out({5, 1}, Shares(2, 0), Shares{2, 2}, 100) == Shares{2, 2});
    CHECK(share_out({}, {}, {}, 5).empty());
    CHECK(share_out({1e-310, 1e300}, Shares(2, 3), free(2), 50) == Shares{3, 47});
    for (uint64_t seed = 0; seed < 200; ++seed) {
        const size_t n = 1 + seed % 40;
        std::vector<double> weights;
        Shares least, most;
        for (size_t i = 0; i < n; ++i) {
            const uint64_t x = mix(seed * 100 + i);
            weights.push_back(static_cast<double>(x % 1000) / 7);
            least.push_back(static_cast<int64_t>(x >> 20) % 5);
            most.push_back(least.back() + static_cast<int64_t>(x >> 40) % 200);
        }
        const int64_t low = std::accumulate(least.begin(), least.end(), int64_t{0}),
                      high = std::accumulate(most.begin(), most.end(), int64_t{0});
        const int64_t total =
            low + static_cast<int64_t>(mix(seed)) % (high - low + 1) * (high > low ? 1 : 0);
        const int64_t wanted = std::clamp(total, low, high);
        const Shares shares = share_out(weights, least, most, wanted);
        CHECK(std::accumulate(shares.begin(), shares.end(), int64_t{0}) == wanted);
        for (size_t i = 0; i < n; ++i) CHECK((shares[i] >= least[i] && shares[i] <= most[i]));
    }
}

TEST_CASE("Work on heads runs once for each head, and its first error is thrown") {
    HostServices host{3};
    std::vector<int> done(20, 0);
    for_each_head(host.table(), 20, [&](uint32_t h) { ++done[h]; });
    CHECK(done == std::vector<int>(20, 1));
    try {
        for_each_head(host.table(), 20, [](uint32_t h) {
            if (h == 13) throw Failure(KEEL_E_UNSUPPORTED, "head %u", h);
        });
        FAIL("nothing was thrown");
    } catch (const Failure &failure) {
        CHECK(failure.status() == KEEL_E_UNSUPPORTED);
        CHECK(std::string(failure.what()) == "head 13");
    }
}
