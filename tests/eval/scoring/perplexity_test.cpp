#include "eval/scoring/divergence.hpp"
#include "eval/scoring/logits.hpp"
#include "support/error_text.hpp"
#include "text/logprobs.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace keel;

namespace {

const std::string tiny_folder = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

std::string heldout() {
    std::ifstream file(tiny_folder + "/heldout.txt", std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    REQUIRE(text.str().size() > 10000);
    return text.str();
}

nlohmann::json golden() {
    std::ifstream file(std::string(KEEL_SOURCE_DIR) + "/tests/golden/tiny_perplexity.json");
    return nlohmann::json::parse(file);
}

std::unique_ptr<Pipeline> scored_tiny(std::vector<std::string> sets = {}, uint32_t batch = 1) {
    sets.insert(sets.begin(), {"model.path=" + tiny_folder, "backend.plugin=cpu",
                               "backend.params.compute=exact", "kv.dtype=f32"});
    PipelineOptions options;
    options.max_logit_rows = scoring_rows(4096);
    options.batch = batch;
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

ScoringOptions golden_windows(const nlohmann::json &g) {
    ScoringOptions o;
    o.max_tokens = g.at("tokens");
    o.context = g.at("window");
    o.stride = g.at("stride");
    return o;
}

ScoringOptions golden_places(const nlohmann::json &g) {
    ScoringOptions o;
    o.max_tokens = g.at("tokens");
    o.prefix = g.at("prefix");
    o.continuation = g.at("continuation");
    o.places = g.at("places");
    return o;
}

std::vector<std::string> golden_eviction(const nlohmann::json &g) {
    return {"policy.plugin=sliding_window", "policy.budget.tokens=" + g.at("budget").dump(),
            "policy.protect.prefix=" + g.at("sinks").dump(), "policy.trigger.on=[prefill_end]"};
}

void check_windows(const PerplexityReport &r, const nlohmann::json &expected) {
    REQUIRE(r.windows.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
        INFO("window " << i);
        CHECK(r.windows[i].where.begin == expected[i].at("begin"));
        CHECK(r.windows[i].where.tokens() == expected[i].at("tokens"));
        CHECK(r.windows[i].nll == Approx(expected[i].at("nll").get<double>()).epsilon(1e-5));
    }
}

} // namespace

TEST_CASE("windows score a text as transformers does") {
    const auto pipeline = scored_tiny();
    const auto g = golden();
    const PerplexityReport r = measure_perplexity(*pipeline, heldout(), golden_windows(g));
    check_windows(r, g.at("windows"));
    CHECK(r.nll.count == g.at("tokens"));
    CHECK(r.has_bos);
    double sum = 0;
    for (const auto &w : g.at("windows"))
        sum += w.at("nll").get<double>() * w.at("tokens").get<double>();
    CHECK(r.perplexity() == Approx(std::exp(sum / g.at("tokens").get<double>())).epsilon(1e-4));
    REQUIRE(r.nll.error);
    CHECK(*r.nll.error > 0);
    CHECK(*r.perplexity_error() == Approx(r.perplexity() * *r.nll.error));
    const auto json = perplexity_json(r, "1");
    CHECK(json.at("windows").size() == g.at("windows").size());
    CHECK(json.at("scoring").at("context").get<int>() == g.at("window").get<int>());
}

TEST_CASE("a text scored token by token has the same score as in pieces") {
    const auto pipeline = scored_tiny();
    const auto g = golden();
    ScoringOptions options = golden_windows(g);
    options.max_tokens = 200;
    const PerplexityReport many = measure_perplexity(*pipeline, heldout(), options);
    options.step = 1;
    const PerplexityReport one = measure_perplexity(*pipeline, heldout(), options);
    options.step = 7;
    const PerplexityReport seven = measure_perplexity(*pipeline, heldout(), options);
    CHECK(one.nll.count == 200);
    CHECK(one.nll.mean == Approx(many.nll.mean).epsilon(1e-5));
    CHECK(seven.nll.mean == Approx(many.nll.mean).epsilon(1e-5));
}

TEST_CASE("a continuation after a prefix, full and evicted, is scored as transformers does") {
    const auto g = golden();
    const std::string text = heldout();
    const auto full = scored_tiny();
    ScoringOptions options = golden_places(g);
    check_windows(measure_perplexity(*full, text, options), g.at("full"));
    const auto evicting = scored_tiny(golden_eviction(g));
    options.step = 1;
    const PerplexityReport one = measure_perplexity(*evicting, text, options);
    check_windows(one, g.at("evicted"));
    CHECK(one.evictions == g.at("places"));
    CHECK(one.nll.blocks == g.at("places"));
    const int64_t held = g.at("budget").get<int64_t>() + g.at("continuation").get<int64_t>();
    CHECK(one.windows[0].cache.slots == held);
    options.step = 16;
    check_windows(measure_perplexity(*evicting, text, options), g.at("evicted"));
}

TEST_CASE(
    "a policy that evicts in decode is scored token by token, and reports if it evicted nothing") {
    const auto pipeline = scored_tiny({"policy.plugin=sliding_window", "policy.budget.tokens=40"});
    ScoringOptions options = golden_places(golden());
    options.places = 2;
    const PerplexityReport r = measure_perplexity(*pipeline, heldout(), options);
    CHECK(r.options.step == 1);
    CHECK(r.evictions > 4);
    CHECK(r.windows[0].cache.slots <= 40 + 5);

    const auto wide = scored_tiny({"policy.plugin=sliding_window", "policy.budget.tokens=2000"});
    ScoringOptions few;
    few.max_tokens = 60;
    const std::string text = perplexity_text(measure_perplexity(*wide, heldout(), few));
    INFO(text);
    CHECK(text.find("evicted nothing here") != std::string::npos);
}

TEST_CASE(
    "windows and places that are scored together have the same scores as one after the other") {
    const std::string text = heldout();
    ScoringOptions windows, places = golden_places(golden());
    windows.max_tokens = 150, windows.context = 48, windows.stride = 24, windows.step = 1;
    places.places = 5, places.step = 1;
    const std::vector<std::vector<std::string>> all = {
        {},
        {"policy.plugin=sliding_window", "policy.budget.tokens=20"},
        {"policy.plugin=h2o", "policy.budget.tokens=24", "kv.dtype=f16"},
        {"model.weights=q4_0", "backend.params.compute=fast"}};
    for (const std::vector<std::string> &sets : all) {
        const auto alone = scored_tiny(sets), together = scored_tiny(sets, 3);
        // Products of several rows may round differently from products of one row, but not with
        // quantized weights here. An f16 cache rounds the keys again, so a difference in the last
        // bit of a key becomes a difference of one f16 step.
        const auto has = [&](const char *set) {
            return std::find(sets.begin(), sets.end(), set) != sets.end();
        };
        const bool is_f16 = has("kv.dtype=f16");
        const double margin = is_f16 ? 1e-4 : 0; // in nats
        const double epsilon = has("model.weights=q4_0") ? 0 : is_f16 ? 1e-4 : 1e-5;
        for (const ScoringOptions &options : {windows, places}) {
            INFO((sets.empty() ? "" : sets[0]) << ", prefix " << options.prefix);
            const PerplexityReport one = measure_perplexity(*alone, text, options),
                                   three = measure_perplexity(*together, text, options);
            CHECK(three.batch == 3);
            CHECK(three.evictions == one.evictions);
            REQUIRE(three.windows.size() == one.windows.size());
            REQUIRE(three.token_nll.size() == one.token_nll.size());
            for (size_t i = 0; i < one.windows.size(); ++i) {
                CHECK(three.windows[i].where.begin == one.windows[i].where.begin);
                CHECK(three.windows[i].nll ==
                      Approx(one.windows[i].nll).epsilon(epsilon).margin(margin));
                CHECK(three.windows[i].cache.slots == one.windows[i].cache.slots);
                CHECK(three.windows[i].cache.evictions == one.windows[i].cache.evictions);
            }
            for (size_t i = 0; i < one.token_nll.size(); ++i)
                CHECK(three.token_nll[i] ==
                      Approx(one.token_nll[i]).epsilon(epsilon).margin(margin));
        }
    }
    const auto together = scored_tiny({}, 3);
    ScoringOptions many;
    many.max_tokens = 60;
    CHECK_THROWS_WITH(measure_perplexity(*together, text, many), Catch::Contains("(--step 1)"));
}

TEST_CASE("a request to stop ends windows that are scored together, even before the first") {
    const std::string text = heldout();
    ScoringOptions windows;
    windows.max_tokens = 150, windows.context = 48, windows.step = 1;
    const auto together = scored_tiny({}, 3), reference = scored_tiny({}, 3);
    const auto cancelled = [](auto &&measure) {
        return test::error_text(measure, ErrorKind::runtime) == "cancelled";
    };
    together->host().request_cancel();
    CHECK(cancelled([&] { measure_perplexity(*together, text, windows); }));
    CHECK(cancelled([&] { measure_divergence(*together, *reference, text, windows); }));
    together->host().clear_cancel();
    windows.progress = [&](const char *, uint64_t done, uint64_t) {
        if (done > 60) together->host().request_cancel();
    };
    CHECK(cancelled([&] { measure_perplexity(*together, text, windows); }));
}

TEST_CASE("divergences of windows and places scored together are the same as one after the other") {
    const std::string text = heldout();
    ScoringOptions windows, places = golden_places(golden());
    windows.max_tokens = 120, windows.context = 48, windows.stride = 24, windows.step = 1;
    places.places = 5, places.step = 1;
    const std::vector<std::vector<std::string>> all = {
        {"policy.plugin=sliding_window", "policy.budget.tokens=20"},
        {"policy.plugin=h2o", "policy.budget.tokens=24", "kv.dtype=f16"},
        {"model.weights=q4_0"}};
    for (const std::vector<std::string> &sets : all) {
        const auto alone = scored_tiny(sets), alone_ref = scored_tiny(),
                   together = scored_tiny(sets, 3), together_ref = scored_tiny({}, 3);
        for (const ScoringOptions &options : {windows, places}) {
            INFO(sets[0] << ", prefix " << options.prefix);
            const DivergenceReport one = measure_divergence(*alone, *alone_ref, text, options),
                                   three =
                                       measure_divergence(*together, *together_ref, text, options);
            CHECK(three.batch == 3);
            CHECK(three.evictions == one.evictions);
            CHECK(three.kl.count == one.kl.count);
            CHECK(three.kl.mean == Approx(one.kl.mean).epsilon(1e-3));
            CHECK(three.kl_max == Approx(one.kl_max).epsilon(1e-3));
            CHECK(three.nll.mean == Approx(one.nll.mean).epsilon(1e-5));
            REQUIRE(three.windows.size() == one.windows.size());
            for (size_t i = 0; i < one.windows.size(); ++i) {
                CHECK(three.windows[i].where.begin == one.windows[i].where.begin);
                CHECK(three.windows[i].kl == Approx(one.windows[i].kl).epsilon(1e-3).margin(1e-6));
                CHECK(three.windows[i].cache.slots == one.windows[i].cache.slots);
                CHECK(three.windows[i].cache_ref.slots == one.windows[i].cache_ref.slots);
            }
        }
    }
    const auto a = scored_tiny({}, 3), b = scored_tiny({}, 3), one = scored_tiny();
    CHECK(measure_divergence(*a, *b, text, windows).kl_max < 1e-12);
    CHECK_THROWS_WITH(measure_divergence(*a, *one, text, windows),
                      Catch::Contains("different batches"));
}

TEST_CASE("a pipeline has no divergence from itself, and quantized weights have some") {
    const auto a = scored_tiny(), b = scored_tiny(), coarse = scored_tiny({"model.weights=q4_0"});
    ScoringOptions options = golden_windows(golden());
    options.max_tokens = 400;
    const std::string text = heldout();
    const DivergenceReport same = measure_divergence(*a, *b, text, options);
    CHECK(same.kl_max < 1e-12);
    CHECK(same.same_top.mean == 1);
    CHECK(same.delta_log_p.mean == 0);

    const DivergenceReport r = measure_divergence(*coarse, *a, text, options);
    INFO(divergence_text(r));
    CHECK(r.kl.count == 400);
    CHECK(r.kl.mean > 1e-3);
    CHECK(r.kl.mean < 0.1);
    REQUIRE(r.quantiles.size() == 3);
    CHECK(r.quantiles[0].value < r.quantiles[1].value);
    CHECK(r.quantiles[2].value <= r.kl_max);
    REQUIRE(r.quantiles[0].error);
    CHECK(*r.quantiles[0].error > 0);
    CHECK(r.same_top.mean > 0.7);
    CHECK(r.delta_log_p.mean == Approx(r.nll_ref.mean - r.nll.mean));
    CHECK(r.nll_ref.mean == Approx(measure_perplexity(*b, text, options).nll.mean));
    const auto json = divergence_json(r, "1");
    CHECK(json.at("kl_quantiles").at(1).at("q") == 0.9);
    CHECK(json.at("windows").size() == r.windows.size());
}

TEST_CASE("texts that cannot be scored are refused with a reason") {
    const auto pipeline = scored_tiny({"model.context=64"});
    const auto refused = [&](auto change, ErrorKind kind = ErrorKind::usage) {
        ScoringOptions options;
        change(options);
        return test::error_text(
            [&] { measure_perplexity(*pipeline, "Once upon a time there was", options); }, kind);
    };
    CHECK(refused([](ScoringOptions &o) { o.stride = 65; }).find("stride: expected 1 to 64") !=
          std::string::npos);
    CHECK(refused([](ScoringOptions &o) { o.context = 1; }).find("--window") != std::string::npos);
    CHECK(refused([](ScoringOptions &o) {
              o.prefix = 50;
              o.continuation = 50;
          }).find("model.context") != std::string::npos);
    CHECK(refused([](ScoringOptions &o) {
              o.prefix = 10;
              o.continuation = 5;
          }).find("a prefix of 10 and a continuation of 5 need") != std::string::npos);
    CHECK(refused([](ScoringOptions &o) { o.continuation = 5; }).find("prefix") !=
          std::string::npos);
    CHECK(refused([](ScoringOptions &o) { o.prefix = 5; }).find("continuation") !=
          std::string::npos);
    CHECK(test::error_text([&] { measure_perplexity(*pipeline, "", {}); }).find("0 tokens") !=
          std::string::npos);
    ScoringOptions no_bos;
    no_bos.bos = false;
    const PerplexityReport r = measure_perplexity(*pipeline, "Once upon a time", no_bos);
    CHECK_FALSE(r.has_bos);
    CHECK(static_cast<int64_t>(r.nll.count) == r.text_tokens - 1);
}

TEST_CASE("log probabilities and divergences agree with their definitions") {
    const std::vector<float> a{1, 2, 3, -1000}, b{3, 2, 1, -1000};
    double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
    CHECK(LogSoftmax(a).log_sum_exp() == Approx(std::log(sum)));
    CHECK(log_probability(a, 0) == Approx(1 - std::log(sum)));
    CHECK(most_likely(std::vector<float>{1, 5, 5}) == 1);
    const RowDifference d = compare_rows(a, b, 0);
    double kl = 0;
    for (int i = 0; i < 3; ++i)
        kl += std::exp(static_cast<double>(b[i])) / sum * (static_cast<double>(b[i]) - a[i]);
    CHECK(d.kl == Approx(kl));
    CHECK(d.log_p_ref - d.log_p == Approx(2));
    CHECK_FALSE(d.same_top);
    CHECK(LogSoftmax(std::vector<float>{10000, 10000}).log_sum_exp() ==
          Approx(10000 + std::log(2)));
}

TEST_CASE("errors of a mean treat neighbours as one block") {
    const std::vector<double> values{1, 1, 1, 1, 3, 3, 3, 3};
    const std::vector<size_t> blocks{4, 4};
    const Estimate e = estimate(values, blocks);
    CHECK(e.mean == 2);
    CHECK(*e.error_independent == Approx(std::sqrt(8.0 / 7 / 8)));
    CHECK(*e.error ==
          // two blocks with the means 1 and 3: their standard deviation divided by the square root
          // of two
          Approx(1));
    CHECK_FALSE(estimate(values, std::vector<size_t>{8}).error);
    CHECK_FALSE(estimate(std::vector<double>{1}, std::vector<size_t>{1}).error_independent);

    CHECK(even_blocks(0, 10).empty());
    CHECK(even_blocks(5, 10) == std::vector<size_t>{1, 1, 1, 1, 1});
    CHECK(even_blocks(34, 10).size() == 17);
    const auto large = even_blocks(1003, 10);
    CHECK(large.size() == 100);
    size_t sum = 0;
    for (const size_t length : large) sum += length;
    CHECK(sum == 1003);

    const std::vector<double> sorted{1, 2, 4};
    CHECK(quantile(sorted, 0.5) == 2);
    CHECK(quantile(sorted, 0.75) == 3);
    CHECK(quantile(sorted, 1) == 4);
    const auto mean_of = [](std::vector<double> &v) {
        double total = 0;
        for (const double x : v) total += x;
        return total / static_cast<double>(v.size());
    };
    CHECK(*bootstrap_error(values, blocks, mean_of) == Approx(0.707).epsilon(0.1));
    CHECK_FALSE(bootstrap_error(values, std::vector<size_t>{8}, mean_of));
}
