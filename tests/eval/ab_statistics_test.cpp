#include "eval/stats/distributions.hpp"
#include "eval/stats/statistics.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

const nlohmann::json &golden() {
    static const nlohmann::json json = [] {
        std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/tests/golden/ab_statistics.json");
        return nlohmann::json::parse(in);
    }();
    return json;
}

Approx near(double value, double relative = 1e-9) {
    return Approx(value).epsilon(relative).margin(1e-12);
}

ClusterSums singles(const std::vector<double> &values) {
    std::vector<uint32_t> clusters(values.size());
    for (uint32_t i = 0; i < clusters.size(); ++i) clusters[i] = i;
    return ClusterSums::of(values, clusters);
}

PairedCounts counts(const nlohmann::json &j) {
    return {j[0].get<uint64_t>(), j[1].get<uint64_t>(), j[2].get<uint64_t>(), j[3].get<uint64_t>()};
}

} // namespace

TEST_CASE("distributions are those of scipy") {
    for (const auto &one : golden()["normal"]) {
        CHECK(normal_quantile(one["p"]) == near(one["x"]));
        CHECK(normal_cdf(one["x"].get<double>()) == near(one["p"], 1e-8));
    }
    for (const auto &one : golden()["student"]) {
        INFO(one.dump());
        CHECK(student_quantile(one["p"], one["freedom"]) == near(one["t"], 1e-7));
        CHECK(student_cdf(one["t"], one["freedom"]) == near(one["p"], 1e-8));
    }
    for (const auto &one : golden()["coin"])
        CHECK(fair_coin_cdf(one["k"], one["n"]) == near(one["p"], 1e-8));
    CHECK(std::isinf(normal_quantile(0)));
    CHECK(std::isinf(normal_quantile(1)));
}

TEST_CASE("random numbers of experiments are xoshiro256**, whatever the platform") {
    AbRandom random(golden()["random"]["seed"]);
    for (const auto &word : golden()["random"]["words"])
        CHECK(std::to_string(random.next()) == word.get<std::string>());
    AbRandom small(1);
    for (int i = 0; i < 1000; ++i) CHECK(small.below(3) < 3);
}

TEST_CASE("intervals and tests of rates are those of scipy and of Newcombe's paper") {
    for (const auto &one : golden()["wilson"]) {
        const Interval i = wilson_interval(one["hits"], one["n"], one["confidence"]);
        CHECK(i.low == near(one["low"]));
        CHECK(i.high == near(one["high"]));
    }
    for (const auto &one : golden()["paired"]) {
        INFO(one.dump());
        CHECK(mcnemar_exact(counts(one["counts"])) == near(one["mcnemar"]));
        const Interval i = newcombe_interval(counts(one["counts"]), 0.95);
        CHECK(i.low == near(one["newcombe"][0]));
        CHECK(i.high == near(one["newcombe"][1]));
    }
    // Table III of Newcombe 1998, method 10.
    const Interval paper = newcombe_interval({36, 12, 2, 0}, 0.95);
    CHECK(paper.low == Approx(0.0569).margin(5e-5));
    CHECK(paper.high == Approx(0.3404).margin(5e-5));
    CHECK(newcombe_interval({}, 0.95) == Interval{-1, 1});
    CHECK(wilson_interval(0, 0, 0.95) == Interval{0, 1});
    CHECK(mcnemar_exact({}) == 1);
    CHECK(mcnemar_exact({5, 0, 0, 5}) == 1);
    // Nothing differed in 20 pairs: the interval does not shrink to a point.
    const Interval equal = newcombe_interval({20, 0, 0, 0}, 0.95);
    CHECK(equal.low < -0.1);
    CHECK(equal.high > 0.1);
}

TEST_CASE(
    "a bootstrap over documents gives what an independent one gives from the same resamples") {
    for (const auto &one : golden()["bootstrap"]) {
        const auto values = one["values"].get<std::vector<double>>();
        const auto clusters = one["clusters"].get<std::vector<uint32_t>>();
        const ClusterSums sums = ClusterSums::of(values, clusters);
        CHECK(sums.items == values.size());
        CHECK(cluster_error(sums).value() == near(one["error"]));
        const auto found = cluster_bootstrap(sums, 0.95, 500, 7);
        REQUIRE(found);
        REQUIRE(found->bca);
        CHECK(found->percentile.low == near(one["same"]["percentile"][0]));
        CHECK(found->percentile.high == near(one["same"]["percentile"][1]));
        CHECK(found->bca->low == near(one["same"]["bca"][0]));
        CHECK(found->bca->high == near(one["same"]["bca"][1]));
    }
    const auto &library = golden()["library"];
    const auto found =
        cluster_bootstrap(singles(library["values"].get<std::vector<double>>()), 0.95, 10000, 1);
    REQUIRE(found);
    REQUIRE(found->bca);
    CHECK(found->percentile.low == Approx(library["percentile"][0].get<double>()).margin(0.02));
    CHECK(found->percentile.high == Approx(library["percentile"][1].get<double>()).margin(0.02));
    CHECK(found->bca->low == Approx(library["bca"][0].get<double>()).margin(0.02));
    CHECK(found->bca->high == Approx(library["bca"][1].get<double>()).margin(0.02));
}

TEST_CASE("sign flips: all of them where they are few, a seeded sample elsewhere") {
    for (const auto &one : golden()["flips"]) {
        INFO(one.dump());
        const SignFlip found = sign_flip_test(one["values"].get<std::vector<double>>(), 10000, 1);
        CHECK(found.exact == one["exact"].get<bool>());
        if (found.exact) {
            CHECK(found.p == near(one["p"]));
        } else {
            CHECK(found.p == Approx(one["p"].get<double>()).margin(0.02));
        }
    }
    CHECK(sign_flip_test({}, 100, 1).p == 1);
    CHECK(sign_flip_test({{0, 0, 0}}, 100, 1).p == 1);
    CHECK(sign_flip_test({{3}}, 100, 1).p == 1);
    // Far out, it draws ten times as many, so that a correction for many contrasts leaves
    // something.
    const SignFlip clear = sign_flip_test(std::vector<double>(40, 1.0), 10000, 1);
    CHECK(clear.p == Approx(1 / 100001.0));
}

TEST_CASE("Student's interval and test, Holm's adjustment, the detectable effect") {
    const auto &t = golden()["ttest"];
    const ClusterSums sums = singles(t["values"].get<std::vector<double>>());
    CHECK(student_test(sums).value() == near(t["p"], 1e-7));
    const auto interval = student_interval(sums, 0.95);
    CHECK(interval.value().low == near(t["low"], 1e-7));
    CHECK(interval.value().high == near(t["high"], 1e-7));
    const auto adjusted = holm(golden()["holm"]["p"].get<std::vector<double>>());
    for (size_t i = 0; i < adjusted.size(); ++i)
        CHECK(adjusted[i] == near(golden()["holm"]["adjusted"][i]));
    CHECK(holm({}).empty());
    const auto &least = golden()["detectable"];
    CHECK(minimal_detectable_effect(least["error"], least["freedom"], 0.95) ==
          near(least["effect"], 1e-7));
}

TEST_CASE("a trimmed mean, its interval and test are a library's") {
    for (const auto &one : golden()["trimmed"]) {
        const TrimmedMean t = TrimmedMean::of(one["values"].get<std::vector<double>>());
        CHECK(t.mean == near(one["mean"]));
        CHECK(t.error.value() == near(one["error"]));
        const auto interval = t.interval(0.95);
        CHECK(interval.value().low == near(one["low"], 1e-7));
        CHECK(interval.value().high == near(one["high"], 1e-7));
        CHECK(t.test().value() == near(one["p"], 1e-7));
    }
    CHECK(TrimmedMean::of({}).mean == 0);
    CHECK_FALSE(TrimmedMean::of({0.5}).interval(0.95));
    CHECK_FALSE(TrimmedMean::of({0.5}).test());
    CHECK(TrimmedMean::of({0.5, 0.5}).test().value() == 0);
    CHECK(TrimmedMean::of({0, 0, 0}).test().value() == 1);
    CHECK_THROWS_AS(TrimmedMean::of({1, NAN}), Error);
}

TEST_CASE("samples of nothing, of one and of equals have no interval of their own making") {
    const ClusterSums none = ClusterSums::of({}, {});
    CHECK(none.mean() == 0);
    CHECK_FALSE(cluster_error(none));
    CHECK_FALSE(cluster_bootstrap(none, 0.95, 100, 1));
    CHECK_FALSE(student_interval(none, 0.95));
    CHECK_FALSE(student_test(none));
    const ClusterSums one = singles({0.5});
    CHECK(one.mean() == 0.5);
    CHECK_FALSE(cluster_error(one));
    CHECK_FALSE(cluster_bootstrap(one, 0.95, 100, 1));
    const ClusterSums equal = singles({0.1, 0.1, 0.1, 0.1, 0.1, 0.1});
    CHECK(cluster_error(equal).value() == 0);
    const auto interval = cluster_bootstrap(equal, 0.95, 100, 1);
    REQUIRE(interval);
    CHECK_FALSE(interval->bca);
    CHECK(interval->percentile.low == Approx(0.1));
    CHECK(student_test(equal).value() == 0);
    CHECK(student_test(singles({0, 0, 0})).value() == 1);
    // Two items of one document are one piece of evidence.
    const std::vector<double> values{1, 2, 3, 4};
    const std::vector<uint32_t> clusters{5, 5, 5, 5};
    CHECK_FALSE(cluster_error(ClusterSums::of(values, clusters)));
}

TEST_CASE("a number that is not finite is refused, not averaged") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto refused = [](auto &&action) {
        const std::string text = test::error_text(action, ErrorKind::runtime);
        CHECK(text.find("one is") != std::string::npos);
    };
    refused([&] { singles({1, nan}); });
    refused([&] { singles({1, std::numeric_limits<double>::infinity()}); });
    refused([&] { sign_flip_test({{nan}}, 10, 1); });
    refused([&] { holm({{nan}}); });
    refused([&] { wilson_interval(nan, 3, 0.95); });
    refused([&] { minimal_detectable_effect(nan, 3, 0.95); });
    ClusterSums broken = singles({1, 2});
    broken.sums[0] = nan;
    refused([&] { cluster_error(broken); });
    refused([&] { cluster_bootstrap(broken, 0.95, 10, 1); });
}

TEST_CASE("equal seeds give equal intervals, other seeds others") {
    const auto values = golden()["library"]["values"].get<std::vector<double>>();
    const auto a = cluster_bootstrap(singles(values), 0.95, 1000, 5),
               b = cluster_bootstrap(singles(values), 0.95, 1000, 5);
    const auto c = cluster_bootstrap(singles(values), 0.95, 1000, 6);
    CHECK(a->percentile == b->percentile);
    CHECK(a->bca == b->bca);
    CHECK_FALSE(a->percentile == c->percentile);
}
