// The promised power, by simulation: how often a planted difference is found with the number of
// documents that the power calculation asks for.
#include "eval/ab/verdicts/power.hpp"
#include "results.hpp"
#include "simulation.hpp"

#include <catch2/catch.hpp>
#include <functional>

using namespace keel;
using test::Draws;

namespace {

// One document of both arms, appended to `pairs`. `truth`: the mean of A - B.
using DrawDocument = std::function<void(Draws &, double truth, ab::Pairs &pairs)>;

ab::Contrast measured(const std::string &metric, const ab::Statistics &s, uint64_t documents,
                      double truth, const DrawDocument &draw, Draws &draws) {
    ab::Pairs pairs;
    for (uint64_t d = 0; d < documents; ++d) {
        draw(draws, truth, pairs);
        while (pairs.clusters.size() < pairs.a.size())
            pairs.clusters.push_back(static_cast<uint32_t>(d));
    }
    ab::Contrast c = test::made_contrast(metric);
    c.is_listed = true;
    measure_contrast(c, pairs, s);
    return c;
}

struct Found {
    double worse = 0, non_inferior = 0; // shares of the experiments
    uint64_t find_needed = 0, non_inferior_needed = 0;
};

// A pilot of 2,000 documents without a difference gives the documents that `tests` planned
// contrasts need. Then experiments of this size run, with a true loss of the margin and without.
Found simulate_power(const std::string &metric, double margin, size_t tests,
                     const DrawDocument &draw) {
    ab::Statistics s;
    s.resamples = 999;
    s.margins = {{metric, margin}};
    Draws draws(11);
    ab::Summary pilot;
    pilot.header.statistics = s;
    for (size_t i = 0; i < tests; ++i)
        pilot.contrasts.push_back(measured(metric, s, 2000, 0, draw, draws));
    const ab::PowerTable table = ab::power_of_pilot(pilot, {});
    Found out;
    out.find_needed = table.rows[0].find_needed.value();
    out.non_inferior_needed = table.rows[0].non_inferior_needed.value();
    const double loss = ab::metric_named(metric).higher_is_better ? -margin : margin;
    constexpr int experiments = 600;
    for (int i = 0; i < experiments; ++i) {
        // The other contrasts of the family have no difference, so Holm's first step decides.
        std::vector<ab::Contrast> lossy, equal;
        for (size_t t = 0; t < tests; ++t) {
            lossy.push_back(measured(metric, s, out.find_needed, t == 0 ? loss : 0, draw, draws));
            equal.push_back(
                measured(metric, s, out.non_inferior_needed, t == 0 ? 0 : loss, draw, draws));
        }
        settle_verdicts(lossy, s);
        settle_verdicts(equal, s);
        out.worse += lossy[0].verdict == ab::Verdict::worse ? 1.0 / experiments : 0;
        out.non_inferior += equal[0].non_inferior ? 1.0 / experiments : 0;
    }
    return out;
}

} // namespace

TEST_CASE("a planted difference is found in about 80% of the experiments, as promised") {
    const DrawDocument hits = [](Draws &d, double truth, ab::Pairs &pairs) {
        const double u = d.uniform(), gain = 0.5 * (0.2 + truth), loss = 0.5 * (0.2 - truth);
        pairs.a.push_back(u < gain ? 1 : u < gain + loss ? 0 : 1);
        pairs.b.push_back(u < gain ? 0 : 1);
    };
    // Four questions in a document, of which a document loses or gains all or none.
    const DrawDocument shares = [&](Draws &d, double truth, ab::Pairs &pairs) {
        ab::Pairs one;
        hits(d, truth, one);
        for (int q = 0; q < 4; ++q) {
            pairs.a.push_back(one.a[0]);
            pairs.b.push_back(one.b[0]);
        }
    };
    const DrawDocument normal = [](Draws &d, double truth, ab::Pairs &pairs) {
        pairs.b.push_back(3 + 0.5 * d.normal());
        pairs.a.push_back(pairs.b.back() + truth + 0.3 * d.normal());
    };
    const DrawDocument ratios = [](Draws &d, double truth, ab::Pairs &pairs) {
        pairs.b.push_back(std::exp(0.5 * d.normal()));
        pairs.a.push_back(pairs.b.back() * (1 + truth) * std::exp(0.3 * d.normal()));
    };
    struct Case {
        const char *name, *metric;
        double margin;
        size_t tests;
        const DrawDocument &draw;
    };
    for (const Case &one :
         {Case{"hits", "hit", 0.1, 1, hits}, Case{"hits of 4", "hit", 0.1, 4, hits},
          Case{"shares", "f1", 0.1, 1, shares}, Case{"nll", "nll", 0.08, 1, normal},
          Case{"nll of 3", "nll", 0.08, 3, normal}, Case{"kld", "kld", 0.1, 1, ratios}}) {
        const Found found = simulate_power(one.metric, one.margin, one.tests, one.draw);
        INFO(one.name << ": worse " << found.worse << " with " << found.find_needed
                      << " documents, non-inferior " << found.non_inferior << " with "
                      << found.non_inferior_needed);
        CHECK(found.worse >= 0.75);
        CHECK(found.worse <= 0.86);
        CHECK(found.non_inferior >= 0.75);
        CHECK(found.non_inferior <= 0.86);
    }
}
