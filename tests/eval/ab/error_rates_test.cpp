// Simulations of whole families of contrasts that check how often verdicts are false.
#include "eval/stats/mean_inference.hpp"
#include "results.hpp"
#include "simulation.hpp"

#include <catch2/catch.hpp>
#include <functional>

using namespace keel;
using test::Draws;

namespace {

// Draws the pairs of all contrasts of one experiment. The contrasts are one family.
using Experiment = std::function<std::vector<ab::Pairs>(Draws &)>;

struct Rates {
    // share of experiments with this claim
    double differs = 0, within = 0, non_inferior = 0, beyond = 0;
    double holds = 0; // share of experiments in which all intervals contain the true value
};

Rates simulate(const std::string &metric, const ab::Statistics &s, double truth, int experiments,
               const Experiment &draw) {
    Draws draws(7);
    Rates out;
    const double one = 1.0 / experiments;
    for (int i = 0; i < experiments; ++i) {
        std::vector<ab::Contrast> all;
        for (const ab::Pairs &pairs : draw(draws)) {
            ab::Contrast c = test::made_contrast(metric);
            measure_contrast(c, pairs, s);
            all.push_back(std::move(c));
        }
        settle_verdicts(all, s);
        const auto any = [&](auto claim) {
            return std::any_of(all.begin(), all.end(), claim) ? one : 0;
        };
        out.differs += any([](const ab::Contrast &c) {
            return c.verdict == ab::Verdict::better || c.verdict == ab::Verdict::worse;
        });
        out.within += any([](const ab::Contrast &c) { return c.within_margin; });
        out.non_inferior += any([](const ab::Contrast &c) { return c.non_inferior; });
        out.beyond += any([](const ab::Contrast &c) { return c.beyond_margin; });
        out.holds += one - any([&](const ab::Contrast &c) {
                         return truth < c.interval->low || truth > c.interval->high;
                     });
    }
    return out;
}

// Hits of several arms that are compared with the same reference. `lost` and `won` are shares of an
// arm's documents.
Experiment hits(size_t arms, size_t n, double lost, double won) {
    return [=](Draws &d) {
        std::vector<ab::Pairs> all;
        std::vector<double> reference(n);
        // chosen so that `lost` and `won` are possible
        const double base = 0.5 + 0.5 * (lost - won);
        for (double &v : reference) v = d.uniform() < base ? 1 : 0;
        for (size_t arm = 0; arm < arms; ++arm) {
            std::vector<double> own = reference;
            for (double &v : own)
                v = v == 1 ? (d.uniform() < lost / base ? 0 : 1)
                           : (d.uniform() < won / (1 - base) ? 1 : 0);
            all.push_back(test::made_pairs(own, reference));
        }
        return all;
    };
}

// nll of several arms. The losses of documents come from `family`: their mean is subtracted, they
// are scaled, and `truth` is added.
Experiment losses(const test::Family &family, size_t arms, size_t n, double scale, double truth) {
    return [=](Draws &d) {
        std::vector<ab::Pairs> all;
        std::vector<double> reference(n);
        for (double &v : reference) v = 3 + 0.5 * d.normal();
        for (size_t arm = 0; arm < arms; ++arm) {
            std::vector<double> own = reference;
            for (double &v : own) v += truth + scale * (family.draw(d) - family.mean);
            all.push_back(test::made_pairs(own, reference));
        }
        return all;
    };
}

ab::Statistics simulated_statistics() {
    ab::Statistics s;
    s.resamples = 999;
    return s;
}

} // namespace

TEST_CASE("experiments without an effect: a false verdict in at most 6% of 1,000") {
    ab::Statistics s = simulated_statistics();
    constexpr int experiments = 1000;
    for (const size_t n : {20, 100}) {
        const Rates found = simulate("hit", s, 0, experiments, hits(20, n, 0.1, 0.1));
        INFO(n << " hits, 20 arms: " << found.differs);
        CHECK(found.differs <= 0.06);
        CHECK(found.holds >= 0.94);
    }
    const Rates single = simulate("hit", s, 0, experiments, hits(1, 100, 0.15, 0.15));
    INFO("one contrast: " << single.differs);
    CHECK(single.differs <= 0.06);
    CHECK(single.differs >= 0.02); // so the test really has a level of 5%
    for (const test::Family &family : test::plain_families()) {
        // A tail as heavy as in this family needs more than 100 documents. With 100 documents, the
        // rate is 0.066.
        const bool is_heavy = family.name == "lognormal, sigma 1";
        if (!is_heavy && family.name != "gamma, shape 0.5" && family.name != "t, 3 degrees" &&
            family.name != "tiny, nll knorm - full")
            continue;
        const size_t n = is_heavy ? 200 : asked_documents;
        const Rates found = simulate("nll", s, 0, experiments, losses(family, 3, n, 1, 0));
        INFO(family.name << ", 3 arms: " << found.differs << ", holds " << found.holds);
        CHECK(found.differs <= 0.06);
        CHECK(found.holds >= 0.94);
    }
}

TEST_CASE("ratios of kld without an effect, from 10 documents on: a false verdict in at most 6%") {
    ab::Statistics s = simulated_statistics();
    s.resamples = 499;
    const std::vector<double> kld = test::divergences("kld", "window");
    for (const size_t n : {10, 32}) {
        const Experiment draw = [&](Draws &d) {
            std::vector<ab::Pairs> all(3);
            for (ab::Pairs &pairs : all) {
                std::vector<double> a(n), b(n);
                for (size_t i = 0; i < n; ++i) {
                    a[i] = kld[d.below(static_cast<uint32_t>(kld.size()))];
                    b[i] = kld[d.below(static_cast<uint32_t>(kld.size()))];
                }
                pairs = test::made_pairs(a, b);
            }
            return all;
        };
        const Rates found = simulate("kld", s, 0, 1000, draw);
        INFO(n << " documents, 3 contrasts: " << found.differs);
        CHECK(found.differs <= 0.06);
    }
}

TEST_CASE("the truth is on the margin: a false claim about it in at most 5%") {
    ab::Statistics s = simulated_statistics();
    s.margins = {{"hit", 0.05}, {"nll", 0.2}};
    constexpr int experiments = 2000;
    for (const size_t n : {40, 200, 500}) {
        // The true loss is exactly 5 points.
        const Rates found = simulate("hit", s, -0.05, experiments, hits(1, n, 0.08, 0.03));
        INFO(n << " hits: " << found.within << ", " << found.non_inferior << ", " << found.beyond);
        CHECK(found.within <= 0.05);
        CHECK(found.non_inferior <= 0.05);
        CHECK(found.beyond <= 0.05);
        // The true gain is 5 points.
        CHECK(simulate("hit", s, 0.05, experiments, hits(1, n, 0.03, 0.08)).within <= 0.05);
    }
    const Rates family = simulate("hit", s, -0.05, 500, hits(10, 500, 0.08, 0.03));
    INFO("10 arms: " << family.within << ", " << family.non_inferior);
    CHECK(family.within <= 0.05);
    CHECK(family.non_inferior <= 0.05);
    for (const test::Family &skewed : test::plain_families()) {
        if (skewed.name != "lognormal, sigma 1" && skewed.name != "tiny, nll knorm - full" &&
            skewed.name != "gamma, shape 0.5")
            continue;
        // The spread is chosen so that the claim is possible.
        const double scale = skewed.name.starts_with("tiny") ? 5 : 0.5;
        for (const double side : {0.2, -0.2}) {
            const Rates found =
                simulate("nll", s, side, 1000, losses(skewed, 1, asked_documents, scale, side));
            INFO(skewed.name << " at " << side << ": " << found.within << ", " << found.non_inferior
                             << ", " << found.beyond);
            CHECK(found.within <= 0.05);
            if (side > 0) CHECK(found.non_inferior <= 0.05); // the true value is a loss
            if (side > 0) CHECK(found.beyond <= 0.05);
        }
    }
}

TEST_CASE("shares with the truth on the margin: a false claim in at most 6% of 1,000") {
    // Twelve arms of documents with four questions. One in ten documents loses most of its answers.
    const Experiment shares = [](Draws &d) {
        std::vector<ab::Pairs> all;
        for (int arm = 0; arm < 12; ++arm) {
            std::vector<double> own, reference;
            for (int i = 0; i < 100; ++i) {
                double sum = 0;
                for (int q = 0; q < 4; ++q) {
                    const double u = d.uniform();
                    sum += u < 0.7 ? -0.25 : u < 0.8 ? 0.25 : 0;
                }
                const double difference = d.uniform() < 0.1 ? sum : 0;
                reference.push_back(difference < 0 ? 1 : 0);
                own.push_back(reference.back() + difference);
            }
            all.push_back(test::made_pairs(own, reference));
        }
        return all;
    };
    ab::Statistics s = simulated_statistics();
    s.margins["substring_all"] = 0.06; // the margin equals the true loss
    const Rates found = simulate("substring_all", s, -0.06, 1000, shares);
    CHECK(found.non_inferior <= 0.06);
    CHECK(found.within <= 0.06);
    CHECK(found.beyond <= 0.06);
    CHECK(found.holds >= 0.94);
}
