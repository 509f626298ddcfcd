#include "base/error.hpp"
#include "eval/stats/bootstrap_t.hpp"
#include "eval/stats/cluster_bootstrap.hpp"
#include "eval/stats/clusters.hpp"
#include "eval/stats/distributions.hpp"
#include "eval/stats/mean_inference.hpp"
#include "eval/stats/multiplicity.hpp"
#include "eval/stats/paired_rates.hpp"
#include "eval/stats/power.hpp"
#include "eval/stats/random.hpp"
#include "eval/stats/trimmed_mean.hpp"
#include "eval/stats/wilson.hpp"
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

TEST_CASE("distributions agree with scipy") {
    for (const auto &one : golden()["normal"]) {
        CHECK(normal_quantile(one["p"]) == near(one["x"]));
        CHECK(normal_cdf(one["x"].get<double>()) == near(one["p"], 1e-8));
    }
    for (const auto &one : golden()["student"]) {
        INFO(one.dump());
        CHECK(student_quantile(one["p"], one["freedom"]) == near(one["t"], 1e-7));
        CHECK(student_cdf(one["t"], one["freedom"]) == near(one["p"], 1e-8));
    }
    CHECK(std::isinf(normal_quantile(0)));
    CHECK(std::isinf(normal_quantile(1)));
}

TEST_CASE("random numbers of experiments are xoshiro256**, whatever the platform") {
    Xoshiro256 random(golden()["random"]["seed"]);
    for (const auto &word : golden()["random"]["words"])
        CHECK(std::to_string(random.next()) == word.get<std::string>());
    Xoshiro256 small(1);
    for (int i = 0; i < 1000; ++i) CHECK(small.below(3) < 3);
}

TEST_CASE("intervals of rates agree with scipy") {
    for (const auto &one : golden()["wilson"]) {
        const Interval i = wilson_interval(one["hits"], one["n"], one["confidence"]);
        CHECK(i.low == near(one["low"]));
        CHECK(i.high == near(one["high"]));
    }
    CHECK(wilson_interval(0, 0, 0.95) == Interval{0, 1});
}

TEST_CASE("paired rates have McNemar's and Tango's score test and the matching interval") {
    for (const auto &one : golden()["paired"]) {
        INFO(one.dump());
        const PairedRateInference found(counts(one["counts"]));
        CHECK(found.p_outside(0, 0) == near(one["mcnemar"], 1e-7));
        const Interval i = found.interval(0.95);
        CHECK(i.low == near(one["tango"][0], 1e-7));
        CHECK(i.high == near(one["tango"][1], 1e-7));
        for (const auto &below : one["below"])
            CHECK(found.below(below[0]) == Approx(below[1].get<double>()).epsilon(1e-4));
    }
    // The airway data of Fagerland, Lydersen and Laake (2014), with Tango's interval.
    const Interval paper = PairedRateInference({1, 1, 7, 12}).interval(0.95);
    CHECK(paper.low == Approx(-0.517).margin(5e-4));
    CHECK(paper.high == Approx(-0.026).margin(5e-4));
    // Nothing differed in 20 pairs. The interval does not shrink to a point.
    const PairedRateInference equal({20, 0, 0, 0});
    CHECK(equal.p_outside(0, 0) == 1);
    CHECK(equal.interval(0.95).low < -0.1);
    CHECK(equal.interval(0.95).high > 0.1);
    // All pairs differed.
    const Interval all = PairedRateInference({0, 20, 0, 0}).interval(0.95);
    CHECK(all.high == 1);
    CHECK(all.low < 0.9);
    const Interval one = PairedRateInference({0, 1, 0, 0}).interval(0.95);
    CHECK(one.low >= -1);
    CHECK(one.low < 0);
}

TEST_CASE("an interval excludes a value exactly if its p-value is at most the level") {
    const std::vector<double> shares{0, 0, -0.5, 0, 0.25, -1, 0, -0.25, 0, -0.5, -0.5, 0};
    const std::vector<std::shared_ptr<const Inference>> all{
        std::make_shared<PairedRateInference>(PairedCounts{30, 12, 3, 5}),
        std::make_shared<StudentInference>(0.3, 0.1, 9),
        share_difference(singles(shares)),
        student_of_mean(singles(shares)),
        std::make_shared<BootstrapTInference>(shares, 3999, 1),
        mean_of_documents(singles(shares), 3999, 1)};
    for (const auto &inference : all)
        for (const double confidence : {0.5, 0.9, 0.95, 0.999}) {
            const Interval i = inference->interval(confidence);
            const double level = 1 - confidence, step = 1e-6;
            CHECK(inference->p_above(i.low - step) <= level);
            CHECK(inference->p_above(i.low + step) > level);
            CHECK(inference->p_below(i.high + step) <= level);
            CHECK(inference->p_below(i.high - step) > level);
            // The test says "inside the band" if both ends of the interval are inside the band.
            CHECK(inference->p_inside(i.low - step, i.high + step) <= level);
            CHECK(inference->p_inside(i.low + step, i.high + step) > level);
            CHECK(inference->p_outside(i.low - 1, i.low - step) <= level);
            CHECK(inference->p_outside(i.low + step, i.low + 1) > level);
        }
}

TEST_CASE("differences of shares use the score test of paired rates in steps") {
    // If all differences are whole numbers, the method is that of paired rates.
    std::vector<double> values(40, 0.0);
    std::fill_n(values.begin(), 10, -1.0);
    values.back() = 1;
    const Interval whole = share_difference(singles(values))->interval(0.95),
                   pairs = PairedRateInference({20, 1, 10, 9}).interval(0.95);
    CHECK(whole.low == Approx(pairs.low));
    CHECK(whole.high == Approx(pairs.high));
    CHECK(share_difference(ClusterSums{}) == nullptr);
    // The values have no spread. The method does not conclude that there is none.
    CHECK(share_difference(singles(std::vector<double>(60, 0.0)))->interval(0.95).high > 0.05);
    // Partial hits count less.
    for (double &v : values) v *= 0.25;
    const Interval parts = share_difference(singles(values))->interval(0.95);
    CHECK(parts.low > 0.6 * whole.low);
    CHECK(parts.low < 0.25 * whole.low);
}

TEST_CASE("documents with several items give one number each, with mean and error") {
    const ClusterSums sums = ClusterSums::of({{1, 0, 1, 1, 0, 0.5}}, {{3, 3, 3, 5, 5, 9}});
    const std::vector<double> numbers = sums.linearized();
    REQUIRE(numbers.size() == 3);
    CHECK((numbers[0] + numbers[1] + numbers[2]) / 3 == Approx(sums.mean()));
    CHECK(cluster_error(singles(numbers)).value() == Approx(cluster_error(sums).value()));
}

TEST_CASE("a bootstrap over documents agrees with an independent one on the same resamples") {
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

TEST_CASE("Student's interval and test, Holm's adjustment and the detectable effect are right") {
    const auto &t = golden()["ttest"];
    const ClusterSums sums = singles(t["values"].get<std::vector<double>>());
    const auto student = student_of_mean(sums);
    REQUIRE(student);
    CHECK(student->p_outside(0, 0) == near(t["p"], 1e-7));
    CHECK(student->interval(0.95).low == near(t["low"], 1e-7));
    CHECK(student->interval(0.95).high == near(t["high"], 1e-7));
    const auto adjusted = holm(golden()["holm"]["p"].get<std::vector<double>>());
    for (size_t i = 0; i < adjusted.size(); ++i)
        CHECK(adjusted[i] == near(golden()["holm"]["adjusted"][i]));
    CHECK(holm({}).empty());
    const auto &least = golden()["detectable"];
    CHECK(minimal_detectable_effect(least["error"], least["freedom"], 0.95) ==
          near(least["effect"], 1e-7));
}

TEST_CASE("a trimmed mean, its interval and its test agree with a library") {
    for (const auto &one : golden()["trimmed"]) {
        const TrimmedMean t = TrimmedMean::of(one["values"].get<std::vector<double>>());
        CHECK(t.mean == near(one["mean"]));
        CHECK(t.error.value() == near(one["error"]));
        const StudentInference inference(t.mean, t.error.value(), t.freedom);
        CHECK(inference.interval(0.95).low == near(one["low"], 1e-7));
        CHECK(inference.interval(0.95).high == near(one["high"], 1e-7));
        CHECK(inference.p_outside(0, 0) == near(one["p"], 1e-7));
    }
    CHECK(TrimmedMean::of({}).mean == 0);
    CHECK_FALSE(TrimmedMean::of({0.5}).error);
    CHECK(TrimmedMean::of({0.5, 0.5}).error == 0.0);
    CHECK(StudentInference(0.5, 0, 1).p_outside(0, 0) == 0);
    CHECK(StudentInference(0, 0, 1).p_outside(0, 0) == 1);
    CHECK(StudentInference(0, 0, 1).interval(0.95) == Interval{0, 0});
    CHECK_THROWS_AS(TrimmedMean::of({1, NAN}), Error);
}

TEST_CASE("samples of zero, of one and of equal numbers have no artificial interval") {
    const ClusterSums none = ClusterSums::of({}, {});
    CHECK(none.mean() == 0);
    CHECK_FALSE(cluster_error(none));
    CHECK_FALSE(cluster_bootstrap(none, 0.95, 100, 1));
    CHECK(student_of_mean(none) == nullptr);
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
    CHECK(student_of_mean(equal)->p_outside(0, 0) == 0);
    CHECK(student_of_mean(singles({0, 0, 0}))->p_outside(0, 0) == 1);
    // Two items of one document count as one observation.
    const std::vector<double> values{1, 2, 3, 4};
    const std::vector<uint32_t> clusters{5, 5, 5, 5};
    CHECK_FALSE(cluster_error(ClusterSums::of(values, clusters)));
}

TEST_CASE("a number that is not finite is refused and not averaged") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto refused = [](auto &&action) {
        const std::string text = test::error_text(action, ErrorKind::runtime);
        CHECK(text.find("expected finite numbers") != std::string::npos);
    };
    refused([&] { singles({1, nan}); });
    refused([&] { singles({1, std::numeric_limits<double>::infinity()}); });
    refused([&] { StudentInference(nan, 1, 3); });
    refused([&] { holm({{nan}}); });
    refused([&] { wilson_interval(nan, 3, 0.95); });
    refused([&] { minimal_detectable_effect(nan, 3, 0.95); });
    ClusterSums broken = singles({1, 2});
    broken.sums[0] = nan;
    refused([&] { cluster_error(broken); });
    refused([&] { cluster_bootstrap(broken, 0.95, 10, 1); });
}

TEST_CASE("the number of documents that a test needs, and the share that it finds in four of five "
          "cases") {
    // 60 pairs: six lost and none won give p = 0.014 (McNemar's score), five lost give 0.025. So
    // five are enough.
    const auto lose = [](uint64_t n) {
        return [n](uint64_t k) -> std::shared_ptr<const Inference> {
            return std::make_shared<PairedRateInference>(PairedCounts{n - k, 0, k, 0});
        };
    };
    CHECK(documents_needed(60, 0.05, lose(60)) == 4U);
    CHECK(documents_needed(60, 0.02, lose(60)) == 6U);
    CHECK_FALSE(documents_needed(3, 0.05, lose(3)));
    CHECK_FALSE(documents_needed(0, 0.05, lose(0)));
    // With this share, P(at least 6 of 60) is 0.8.
    CHECK(share_for(60, 6) == Approx(0.129).margin(0.001));
}

TEST_CASE("equal seeds give equal intervals, and other seeds give others") {
    const auto values = golden()["library"]["values"].get<std::vector<double>>();
    const auto a = cluster_bootstrap(singles(values), 0.95, 1000, 5),
               b = cluster_bootstrap(singles(values), 0.95, 1000, 5);
    const auto c = cluster_bootstrap(singles(values), 0.95, 1000, 6);
    CHECK(a->percentile == b->percentile);
    CHECK(a->bca == b->bca);
    CHECK_FALSE(a->percentile == c->percentile);
}
