#include "base/error.hpp"
#include "text/sampler.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

using keel::Sampler;
using keel::SamplingParams;

namespace {

// Returns the exact distribution by its definition, in long double: id -> probability.
std::map<std::int32_t, double> exact(const std::vector<float> &logits, const SamplingParams &p) {
    struct Entry {
        std::int32_t id;
        long double probability;
    };
    std::vector<Entry> all;
    const float highest = *std::max_element(logits.begin(), logits.end());
    for (std::size_t i = 0; i < logits.size(); ++i)
        all.push_back({static_cast<std::int32_t>(i),
                       expl((static_cast<long double>(logits[i]) - highest) / p.temperature)});
    std::stable_sort(all.begin(), all.end(),
                     [](const Entry &a, const Entry &b) { return a.probability > b.probability; });
    const auto normalize = [&] {
        long double sum = 0;
        for (const Entry &e : all) sum += e.probability;
        for (Entry &e : all) e.probability /= sum;
    };
    if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < all.size())
        all.resize(static_cast<std::size_t>(p.top_k));
    normalize();
    if (p.top_p < 1) {
        long double mass = 0;
        std::size_t kept = 0;
        while (kept < all.size() && (kept == 0 || mass < p.top_p)) mass += all[kept++].probability;
        all.resize(kept);
        normalize();
    }
    const long double floor = all.front().probability * p.min_p;
    std::erase_if(all, [&](const Entry &e) { return e.probability < floor; });
    normalize();
    std::map<std::int32_t, double> out;
    for (const Entry &e : all) out[e.id] = static_cast<double>(e.probability);
    return out;
}

std::vector<float> random_logits(std::size_t count, unsigned seed, float spread) {
    std::mt19937 random(seed);
    std::vector<float> logits(count);
    for (float &logit : logits)
        logit = spread * (static_cast<float>(random() >> 8) / static_cast<float>(1 << 24) - 0.5F);
    return logits;
}

std::vector<std::int32_t> survivors(const std::vector<float> &logits,
                                    const SamplingParams &params) {
    Sampler sampler(params);
    sampler.sample(logits, {});
    std::vector<std::int32_t> ids;
    for (const auto &candidate : sampler.candidates()) ids.push_back(candidate.id);
    std::sort(ids.begin(), ids.end());
    return ids;
}

using Ids = std::vector<std::int32_t>;

} // namespace

TEST_CASE("draws follow the exact distribution") {
    const std::vector<SamplingParams> cases{
        {.temperature = 1.0F, .seed = 1},
        {.temperature = 0.5F, .seed = 2},
        {.temperature = 2.0F, .top_k = 7, .seed = 3},
        {.temperature = 1.0F, .top_p = 0.8F, .seed = 4},
        {.temperature = 1.3F, .min_p = 0.2F, .seed = 5},
        {.temperature = 0.8F, .top_k = 15, .top_p = 0.95F, .min_p = 0.05F, .seed = 6},
    };
    const auto logits = random_logits(20, 11, 6.0F);
    constexpr int draws = 40000;
    for (const SamplingParams &params : cases) {
        INFO("seed " << params.seed);
        const auto expected = exact(logits, params);
        Sampler sampler(params);
        std::map<std::int32_t, int> counts;
        for (int i = 0; i < draws; ++i) ++counts[sampler.sample(logits, {})];
        double chi_square = 0;
        for (const auto &[id, probability] : expected) {
            const double difference = counts[id] - draws * probability;
            chi_square += difference * difference / (draws * probability);
        }
        for (const auto &[id, count] : counts) CHECK((expected.contains(id) || count == 0));
        // The mean is df and the deviation sqrt(2 df). Four deviations are far beyond chance, and
        // the seeds are fixed.
        const double df = static_cast<double>(expected.size()) - 1;
        CHECK(chi_square < df + 4 * std::sqrt(2 * df) + 1e-9);
    }
}

TEST_CASE("filters keep the tokens and weights of the definition, for large vocabularies too") {
    for (unsigned seed = 0; seed < 40; ++seed) {
        auto logits = random_logits(seed % 4 == 0 ? 5000 : 300, seed, 14.0F);
        if (seed % 3 == 0)
            for (float &logit : logits) logit = std::round(logit); // this gives many ties
        SamplingParams params{.temperature = 0.3F + 0.1F * static_cast<float>(seed % 10)};
        params.top_k = seed % 5 == 0 ? 0 : static_cast<std::int32_t>(1 + seed * 13 % 400);
        params.top_p = seed % 7 == 0 ? 1.0F : 0.3F + 0.017F * static_cast<float>(seed);
        params.min_p = seed % 2 == 0 ? 0.0F : 0.01F;
        params.seed = seed;
        INFO("seed " << seed);
        const auto expected = exact(logits, params);
        Sampler sampler(params);
        sampler.sample(logits, {});
        double total = 0;
        for (const auto &c : sampler.candidates()) total += c.weight;
        std::size_t found = 0;
        for (const auto &c : sampler.candidates()) {
            REQUIRE(expected.contains(c.id));
            CHECK(c.weight / total == Approx(expected.at(c.id)).epsilon(1e-12));
            ++found;
        }
        for (const auto &[id, probability] : expected)
            found += probability < 1e-20 ? 1 : 0; // too unlikely to be drawn, so it is left out
        CHECK(found >= expected.size());
    }
}

TEST_CASE("temperature 0 takes the highest logit with the lowest id, and draws no random number") {
    Sampler sampler({.temperature = 0.0F, .top_k = 1, .top_p = 0.1F, .min_p = 0.9F});
    const auto before = sampler.rng_state();
    CHECK(sampler.sample(std::vector<float>{1, 3, 3, 2}, {}) == 1);
    CHECK(sampler.sample(std::vector<float>{-0.0F, 0.0F}, {}) == 0);
    CHECK(sampler.sample(std::vector<float>{-5}, {}) == 0);
    CHECK(sampler.rng_state() == before);
    CHECK(sampler.candidates().empty());
}

TEST_CASE("each filter is right at its limits") {
    const std::vector<float> logits{0.0F, 2.0F, 1.0F, 2.0F, -1.0F};
    const auto with = [](auto set) {
        SamplingParams params{.temperature = 1.0F, .seed = 9};
        set(params);
        return params;
    };
    CHECK(survivors(logits, with([](auto &) {})) == Ids{0, 1, 2, 3, 4});
    // in a tie, the lower id wins
    CHECK(survivors(logits, with([](auto &p) { p.top_k = 1; })) == Ids{1});
    CHECK(survivors(logits, with([](auto &p) { p.top_k = 3; })) == Ids{1, 2, 3});
    CHECK(survivors(logits, with([](auto &p) { p.top_k = 5; })) == Ids{0, 1, 2, 3, 4});
    CHECK(survivors(logits, with([](auto &p) { p.top_k = 1000; })) == Ids{0, 1, 2, 3, 4});
    CHECK(survivors(logits, with([](auto &p) { p.top_p = 0.0F; })) == Ids{1});
    CHECK(survivors(logits, with([](auto &p) { p.top_p = 0.5F; })) ==
          Ids{1, 3}); // each has a probability of 0.39
    CHECK(survivors(logits, with([](auto &p) { p.min_p = 1.0F; })) == Ids{1, 3});
    CHECK(survivors(logits, with([](auto &p) { p.min_p = 0.36F; })) ==
          Ids{1, 2, 3}); // e^-1 = 0.368
    CHECK(survivors(logits, with([](auto &p) { p.min_p = 0.37F; })) == Ids{1, 3});
    // The limit is reached exactly: two of four equal tokens have half of the probability.
    const std::vector<float> equal{1, 1, 1, 1};
    CHECK(survivors(equal, with([](auto &p) { p.top_p = 0.5F; })) == Ids{0, 1});
    // min-p uses probabilities after the temperature: a high temperature makes unlikely tokens
    // likely enough.
    CHECK(survivors(logits, with([](auto &p) { p.min_p = 0.37F, p.temperature = 4.0F; })) ==
          Ids{0, 1, 2, 3, 4});
    // top-p counts the probability of the tokens that top-k left: 0.39 and 0.39 of 0.93 are 84%.
    CHECK(survivors(logits, with([](auto &p) { p.top_k = 3, p.top_p = 0.84F; })) == Ids{1, 3});
    CHECK(survivors(logits, with([](auto &p) { p.top_p = 0.84F; })) == Ids{1, 2, 3});
    // With a temperature near zero, one token has all the probability, and nothing overflows.
    CHECK(survivors({3e38F, -3e38F, 1}, with([](auto &p) { p.temperature = 1e-30F; })) == Ids{0});
}

TEST_CASE("the repetition penalty is applied once per token of the window") {
    Sampler sampler({.temperature = 0.0F, .repetition_penalty = 2.0F});
    const std::vector<float> logits{4.0F, 3.0F, -1.0F};
    CHECK(sampler.sample(logits, Ids{}) == 0);
    CHECK(sampler.sample(logits, Ids{0}) == 1);       // 2 against 3
    CHECK(sampler.sample(logits, Ids{0, 0, 0}) == 1); // still 2
    // 2 against 1.5: the penalty applies once, not twice
    CHECK(sampler.sample(logits, Ids{0, 1, 1}) == 0);
    CHECK(sampler.sample(std::vector<float>{-1.0F, -1.5F}, Ids{0}) ==
          1); // negative logits are multiplied
    // ids outside the vocabulary are ignored
    CHECK(sampler.sample(logits, Ids{-7, 3, INT32_MAX, 0}) == 1);
    Sampler windowed({.temperature = 0.0F, .repetition_penalty = 2.0F, .repetition_window = 2});
    CHECK(windowed.sample(logits, Ids{0, 2, 2}) == 0);
    CHECK(windowed.sample(logits, Ids{2, 0, 2}) == 1);
    Sampler reward({.temperature = 0.0F, .repetition_penalty = 0.5F});
    CHECK(reward.sample(logits, Ids{1}) == 1);
}

TEST_CASE("the same seed draws the same tokens on every machine") {
    const auto logits = random_logits(1000, 3, 8.0F);
    SamplingParams params{.temperature = 0.9F, .top_k = 50, .top_p = 0.95F, .seed = 42};
    const auto run = [&](const SamplingParams &p) {
        Sampler sampler(p);
        Ids out;
        for (int i = 0; i < 50; ++i) out.push_back(sampler.sample(logits, out));
        return out;
    };
    CHECK(run(params) == run(params));
    SamplingParams other = params;
    other.seed = 43;
    CHECK(run(other) != run(params));
    // xoshiro256** with the seed splitmix64(0). These numbers must never change, because saved
    // sessions would continue differently.
    keel::Rng rng(0);
    CHECK(rng.next() == 0x99EC5F36CB75F2B4U);
    CHECK(rng.next() == 0xBF6E1F784956452AU);
    CHECK(rng.uniform() < 1.0);
}

TEST_CASE("a restored generator continues its random numbers") {
    const auto logits = random_logits(100, 5, 4.0F);
    Sampler first({.temperature = 1.0F, .seed = 7});
    for (int i = 0; i < 10; ++i) first.sample(logits, {});
    Sampler second({.temperature = 1.0F, .seed = 1});
    second.restore_rng(first.rng_state());
    for (int i = 0; i < 20; ++i) CHECK(first.sample(logits, {}) == second.sample(logits, {}));
    second.restore_rng({}); // this state would give zeros forever
    CHECK(second.rng_state() == keel::Rng(0).state());
}

TEST_CASE("a logit that is not finite is an error with its position") {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
        for (const float temperature : {0.0F, 1.0F}) {
            std::vector<float> logits(100, 1.0F);
            logits[37] = value;
            Sampler sampler({.temperature = temperature, .top_k = 5});
            CHECK_THROWS_WITH(sampler.sample(logits, {}),
                              Catch::Matchers::Contains("logit 37 of 100 is "));
        }
    }
    Sampler sampler({});
    CHECK_THROWS_AS(sampler.sample({}, {}), keel::Error);
}

TEST_CASE("parameters out of range are refused by name") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::pair<SamplingParams, const char *>> cases{
        {{.temperature = -0.1F}, "temperature"},
        {{.temperature = nan}, "temperature"},
        {{.temperature = INFINITY}, "temperature"},
        {{.top_k = -1}, "top_k"},
        {{.top_p = 1.1F}, "top_p"},
        {{.top_p = nan}, "top_p"},
        {{.min_p = -0.1F}, "min_p"},
        {{.min_p = 2.0F}, "min_p"},
        {{.repetition_penalty = 0.0F}, "repetition_penalty"},
        {{.repetition_window = -1}, "repetition_window"},
    };
    for (const auto &[params, name] : cases)
        CHECK_THROWS_WITH(Sampler(params), Catch::Matchers::Contains(name));
}
