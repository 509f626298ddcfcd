// What equal numbers prove and what they do not; families, what could be seen in them, and the
// noise floor.
#include "ab_results.hpp"
#include "eval/ab/verdicts/compare.hpp"
#include "eval/ab/verdicts/noise.hpp"
#include "eval/ab/verdicts/summary.hpp"
#include "eval/stats/random.hpp"
#include "support/contains.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace keel;
using test::ab_header;
using test::ab_item;
using test::contains;
using test::find_contrast;
using test::load_ab;
using test::warned;

namespace {

AbContrast measured(const std::vector<double> &a, const std::vector<double> &b,
                    const std::string &metric) {
    AbContrast c = test::ab_contrast(metric);
    measure_contrast(c, test::ab_pairs(a, b), {});
    return c;
}

// Hits of which the first `lost` are none.
std::vector<double> hits_and_losses(size_t n, size_t lost) {
    std::vector<double> out(n, 1);
    std::fill_n(out.begin(), lost, 0);
    return out;
}

AbContrast settled(std::vector<AbContrast> all, const AbStatistics &s = {}) {
    settle_verdicts(all, s);
    return all[0];
}

} // namespace

TEST_CASE("equal hits exclude no loss that the interval does not exclude") {
    const AbContrast twenty =
        settled({measured(hits_and_losses(20, 0), hits_and_losses(20, 0), "hit")});
    CHECK(twenty.verdict == AbVerdict::equal);
    CHECK(twenty.interval->low < -0.15);
    CHECK_FALSE(twenty.within_margin);
    const std::string line = verdict_line(twenty);
    CHECK(contains(line, "a is equal in every item to b on t hit: 0 [-0.161"));
    CHECK_FALSE(contains(line, "margin"));
    const std::string table = ab_contrast_table({&twenty});
    CHECK(contains(table, "equal in every item"));
    CHECK_FALSE(contains(table, "within"));
    const auto json = ab_contrasts_json({twenty})[0];
    CHECK(json.at("verdict") == "equal in every item");
    CHECK(json.at("within_margin") == false);
    // Shares of several questions, or means of several seeds, are no more.
    const std::vector<double> halves(20, 0.5);
    const AbContrast shares = settled({measured(halves, halves, "f1")});
    CHECK(shares.verdict == AbVerdict::equal);
    CHECK(shares.interval->low < -0.1);
    CHECK_FALSE(shares.within_margin);
    // Where the interval excludes it, it is said.
    AbStatistics loose;
    loose.margin = 0.2;
    CHECK(settled({measured(hits_and_losses(20, 0), hits_and_losses(20, 0), "hit")}, loose)
              .within_margin);
    CHECK(settled({measured(hits_and_losses(2000, 0), hits_and_losses(2000, 0), "hit")})
              .within_margin);
    const AbContrast none = settled({measured({}, {}, "hit")});
    CHECK(std::string(ab_verdict_name(none.verdict)) == "no item in common");
    CHECK_FALSE(none.within_margin);
}

TEST_CASE("what could be seen is what the test can see, not what the spread happened to be") {
    // 60 documents, one alone: four have to be lost and none won (their score is 2, p = 0.046).
    // Four times out of five that takes a loss of 0.090 of the documents (binomial distribution);
    // among 104 contrasts thirteen have to be, and 0.257.
    const auto seen = [](size_t lost, size_t family) {
        return settled(std::vector<AbContrast>(family, measured(hits_and_losses(60, lost),
                                                                hits_and_losses(60, 0), "hit")))
            .detectable.value();
    };
    for (const size_t lost : {0, 1, 2}) {
        CHECK(seen(lost, 1) == Approx(0.090).margin(0.001));
        CHECK(seen(lost, 104) == Approx(0.257).margin(0.001));
    }
    CHECK_FALSE(settled(std::vector<AbContrast>(
                            104, measured(hits_and_losses(12, 1), hits_and_losses(12, 0), "hit")))
                    .detectable);
    // Documents with several questions are as many as they are.
    AbPairs pairs{std::vector<double>(40, 1), std::vector<double>(40, 1), {}};
    pairs.a[0] = 0;
    for (uint32_t i = 0; i < 40; ++i) pairs.clusters.push_back(i / 2);
    AbContrast c = test::ab_contrast("hit");
    measure_contrast(c, pairs, {});
    CHECK(settled({c}).detectable.value() >
          0.15); // six of twenty documents, by half of each, are the least
}

TEST_CASE("what was lost never makes an interval end further on the good side") {
    // Two questions a document. Nothing lost, one question, two of different documents, ...
    double low = 0;
    for (size_t lost = 0; lost < 30; ++lost) {
        AbPairs pairs{std::vector<double>(400, 1), std::vector<double>(400, 1), {}};
        for (uint32_t i = 0; i < 400; ++i) pairs.clusters.push_back(i / 2);
        for (size_t i = 0; i < lost; ++i) pairs.a[2 * i] = 0;
        AbContrast c = test::ab_contrast("hit");
        measure_contrast(c, pairs, {});
        INFO(lost << " lost");
        CHECK(c.interval->low < low);
        CHECK(c.interval->low <= c.effect);
        CHECK(c.interval->high >= c.effect);
        low = c.interval->low;
    }
    // Five documents: by Student's t, but no share is less than none.
    const AbContrast few = measured({0, 0, 0, 0, 0.5}, {1, 1, 0.5, 1, 0.5}, "f1");
    CHECK(few.interval->low >= -1);
}

TEST_CASE("what could be seen is what the verdict is held to, in every family") {
    const AbContrast lost = measured(hits_and_losses(30, 7), hits_and_losses(30, 0), "hit");
    const AbContrast alone = settled({lost}), of_many = settled(std::vector<AbContrast>(12, lost));
    CHECK(alone.verdict == AbVerdict::worse);
    CHECK(of_many.verdict == AbVerdict::not_distinguishable);
    // The interval beside a verdict is adjusted as the verdict is.
    CHECK(of_many.interval_alone == alone.interval);
    CHECK(of_many.interval->high >= 0);
    REQUIRE(of_many.detectable);
    CHECK(*of_many.detectable > *alone.detectable);
    // Nothing is "not distinguishable" and larger than what could have been seen.
    for (const size_t n : {6, 8, 12, 20, 30, 60, 200})
        for (const size_t of : {0, 1, 3, 5, 6, 9, 20, 100})
            for (const size_t family : {1, 4, 40}) {
                if (of > n) continue;
                AbContrast c = settled(std::vector<AbContrast>(
                    family, measured(hits_and_losses(n, of), hits_and_losses(n, 0), "hit")));
                INFO(n << " hits, " << of << " lost, among " << family);
                if (c.verdict == AbVerdict::not_distinguishable && c.detectable)
                    CHECK(std::abs(c.effect) <= *c.detectable);
                if (c.verdict == AbVerdict::worse) CHECK(c.detectable);
                c.noise = 0.9; // held back by noise, and by that much
                const AbContrast held = settled({c});
                if (held.verdict == AbVerdict::not_distinguishable && held.detectable)
                    CHECK(std::abs(held.effect) <= *held.detectable);
            }
    // Ten documents reach p = 0.0016: enough for 30 contrasts, not for 40.
    const AbContrast ten = measured(hits_and_losses(10, 10), hits_and_losses(10, 0), "hit");
    CHECK(settled(std::vector<AbContrast>(30, ten)).verdict == AbVerdict::worse);
    CHECK(settled(std::vector<AbContrast>(30, ten)).detectable);
    const AbContrast among = settled(std::vector<AbContrast>(40, ten));
    CHECK(among.verdict == AbVerdict::not_distinguishable);
    CHECK_FALSE(among.detectable);
    CHECK(contains(ab_contrast_table({&among}), "not distinguishable (too few documents)"));
    // Nine are too few, whatever they say.
    const AbContrast nine =
        settled({measured(hits_and_losses(9, 9), hits_and_losses(9, 0), "hit")});
    CHECK(nine.verdict == AbVerdict::too_few);
    CHECK_FALSE(nine.p);
    CHECK_FALSE(nine.beyond_margin);
    CHECK(contains(verdict_line(nine), "; too few documents for a verdict"));
}

TEST_CASE("what was not planned costs the planned contrasts nothing") {
    const test::TempFolder folder;
    std::vector<AbRecord> records;
    for (int i = 0; i < 40; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(ab_item("full", "full", name, 1));
        records.emplace_back(ab_item("window", "tokens:128", name, i < 8 ? 0 : 1));
        records.emplace_back(ab_item("window", "tokens:128", name, i < 8 ? 0 : 1, "nll"));
        for (int budget = 64; budget < 64 * 20; budget += 64)
            records.emplace_back(
                ab_item("snapkv", fmt::format("tokens:{}", budget), name, i < 3 ? 0 : 1));
    }
    AbHeader header = ab_header();
    header.statistics.primary = "passkey/hit";
    // Twenty planned contrasts: the interval and the verdict say less.
    const auto crowded = load_ab(folder, header, records);
    const AbContrast &one = *find_contrast(crowded->summary.contrasts, "window", "full", "hit");
    CHECK(one.family_size == 20);
    CHECK(one.verdict == AbVerdict::not_distinguishable);
    CHECK(one.interval->high >= 0);
    // A sweep draws a curve: it is exploratory.
    header.sweeps = {"snapkv"};
    const auto apart = load_ab(folder, header, records);
    const AbContrast &c = *find_contrast(apart->summary.contrasts, "window", "full", "hit");
    CHECK(c.verdict == AbVerdict::worse);
    CHECK(c.family_size == 1);
    const AbContrast &swept = *find_contrast(apart->summary.contrasts, "snapkv", "full", "hit");
    CHECK(swept.verdict == AbVerdict::exploratory);
    CHECK_FALSE(swept.p);
    CHECK(swept.interval == swept.interval_alone);
    const std::string text = ab_summary_text(apart->summary);
    CHECK(contains(text, "Planned contrasts: 1."));
    CHECK(contains(text, "Exploratory: against the reference"));
    const auto json = ab_contrasts_json(apart->summary.contrasts);
    for (const auto &row : json) {
        CHECK(row.at("p_adjusted").is_null() == !row.at("planned").get<bool>());
        CHECK(row.at("interval_is") ==
              (row.at("planned").get<bool>() ? "simultaneous" : "of this contrast by itself"));
    }
    // So are other arms: their number changes nothing.
    std::vector<AbRecord> more = records;
    for (int arm = 0; arm < 30; ++arm)
        for (int i = 0; i < 40; ++i)
            more.emplace_back(
                ab_item(fmt::format("more{}", arm), "tokens:128", fmt::format("i{}", i), i % 2));
    header.contrasts = {{"window", "full", ""}};
    const auto planned = load_ab(folder, header, more);
    const AbContrast &same = *find_contrast(planned->summary.contrasts, "window", "full", "hit");
    CHECK(same.verdict == AbVerdict::worse);
    CHECK(same.interval == c.interval);
    CHECK(same.p_adjusted == c.p_adjusted);
    // A sweep that the plan names is planned.
    header.contrasts = {{"window", "full", ""}, {"snapkv", "full", ""}};
    CHECK(
        find_contrast(load_ab(folder, header, records)->summary.contrasts, "snapkv", "full", "hit")
            ->planned);
}

TEST_CASE("at equal bytes contrasts are exploratory, and know the noise floor") {
    const test::TempFolder folder;
    std::vector<AbRecord> records;
    const auto add = [&](const std::string &arm, const std::string &budget, uint64_t bytes,
                         double value, const std::string &metric) {
        for (int i = 0; i < 20; ++i) {
            AbItem item =
                ab_item(arm, budget, fmt::format("i{}", i), value + 0.001 * (i % 3), metric);
            item.kv_bytes = bytes;
            records.emplace_back(item);
        }
    };
    for (const char *metric : {"hit", "nll"}) {
        add("full", "full", 8000, 0.6, metric);
        add("full#again", "full", 8000, 0.9, metric);
        add("window", "tokens:64", 2000, 0.5, metric);
        add("window", "tokens:256", 4000, 0.5, metric);
        add("q4cache", "full", 3000, 0.7, metric);
    }
    AbHeader header = ab_header();
    header.statistics.primary = "passkey/hit";
    const auto loaded = load_ab(folder, header, records);
    for (const char *metric : {"hit", "nll"}) {
        const AbContrast &c =
            *find_contrast(loaded->summary.equal_bytes, "q4cache", "window", metric);
        CHECK(c.verdict == AbVerdict::exploratory);
        CHECK(c.interval->low > 0.1);
        CHECK_FALSE(c.p);
        CHECK(c.noise == Approx(0.3));
    }
}

TEST_CASE("a verdict never contradicts the interval beside it, whatever the data") {
    AbRandom random(20261125);
    const auto chance = [&] { return random.below(1'000'000) / 1e6; };
    uint64_t seen[3] = {0, 0, 0}, open = 0;
    for (int round = 0; round < 400; ++round) {
        AbStatistics s;
        s.confidence = round % 2 == 0 ? 0.95 : 0.8;
        std::vector<AbContrast> all;
        const size_t members = 1 + random.below(6);
        for (size_t k = 0; k < members; ++k) {
            const char *metrics[] = {"hit", "nll", "f1", "ppl", "decode_tokens_per_second"};
            const std::string metric = metrics[random.below(5)];
            const double loss = 0.5 * chance(), gain = k == 0 ? 0 : 0.2 * chance();
            const size_t n = 3 + random.below(60);
            std::vector<double> a, b;
            for (size_t i = 0; i < n; ++i) {
                const double u = chance();
                const double step = metric == "f1" ? 0.25 * (1 + random.below(4)) : 1;
                const double base = metric == "hit" || metric == "f1" ? 1 : 2 + chance();
                b.push_back(u < loss + gain && u > loss ? base - step : base);
                a.push_back(u < loss ? base - step : base + (base == 1 ? 0 : 0.4 * chance() - 0.2));
            }
            AbContrast c = test::ab_contrast(metric);
            measure_contrast(c, test::ab_pairs(a, b), s);
            if (random.below(4) == 0) c.noise = 0.1 * chance();
            all.push_back(std::move(c));
        }
        settle_verdicts(all, s);
        for (const AbContrast &c : all) {
            if (!c.interval) continue;
            const double bottom = c.ratio ? 1 / (1 + c.noise) - 1 : -c.noise;
            const bool above =
                c.interval->low > c.noise || (c.low_is_open && c.interval->low == c.noise);
            const bool below =
                c.interval->high < bottom || (c.high_is_open && c.interval->high <= bottom);
            const bool up = c.meaning.higher_is_better ? above : below,
                       down = c.meaning.higher_is_better ? below : above;
            INFO(verdict_line(c));
            CHECK(c.interval->low <= c.interval->high);
            CHECK(c.interval->low <= c.effect);
            CHECK(c.interval->high >= c.effect);
            if (c.verdict == AbVerdict::better) CHECK(up);
            if (c.verdict == AbVerdict::worse) CHECK(down);
            if (c.verdict == AbVerdict::not_distinguishable) CHECK_FALSE((up || down));
            CHECK_FALSE((c.beyond_margin && c.within_margin));
            if (static_cast<int>(c.verdict) < 3) ++seen[static_cast<int>(c.verdict)];
            open += c.low_is_open || c.high_is_open ? 1 : 0;
        }
    }
    // All cases were there.
    for (const uint64_t count : seen) CHECK(count > 20);
    CHECK(open > 5);
}

TEST_CASE("the noise floor is the distance between two runs, not what few documents leave open") {
    const test::TempFolder folder;
    std::vector<AbRecord> records;
    for (int i = 0; i < 60; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(ab_item("full", "full", name, 1));
        records.emplace_back(ab_item("window", "tokens:128", name, i < 20 ? 0 : 1));
        if (i < 8) records.emplace_back(ab_item("full#again", "full", name, i == 0 ? 0 : 1));
    }
    const auto loaded = load_ab(folder, ab_header(), records);
    const AbContrast &c = *find_contrast(loaded->summary.contrasts, "window", "full", "hit");
    CHECK(c.noise == Approx(1.0 / 8));
    CHECK(c.verdict == AbVerdict::worse); // a third is lost: an interval over 8 documents would
                                          // have reached to 0.5
    CHECK(warned(loaded->summary, "differs from itself in 1 of 8"));
    // Changes that cancel out are noise, too.
    AbNames names;
    AbCell a, b;
    a.kind = b.kind = ab_metric("hit");
    for (uint32_t i = 0; i < 4; ++i) {
        a.points.push_back({i, i, i < 2 ? 1.0 : 0.0, 0, -1, 1});
        b.points.push_back({i, i, i % 2 == 0 ? 1.0 : 0.0, 0, -1, 1});
        names.number(fmt::format("{}", i));
    }
    CHECK(ab_mean_distance(a, b, names) == 0.5);
}

TEST_CASE("an arm of a smaller type that evicts and frees nothing is warned of") {
    const test::TempFolder folder;
    std::vector<AbRecord> records;
    for (int i = 0; i < 12; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(ab_item("full", "full", name, 1));
        AbItem masked = ab_item("q4cache", "tokens:128", name, 1);
        masked.kv_bytes = masked.own_full_kv_bytes = 2250; // of 8000 in the reference's types
        masked.policy_bytes = 100;
        records.emplace_back(masked);
        AbItem honest = ab_item("snapkv", "tokens:128", name, 1);
        honest.own_full_kv_bytes = 4250;
        records.emplace_back(honest);
    }
    const auto loaded = load_ab(folder, ab_header(), records);
    CHECK(warned(loaded->summary,
                 "no memory was saved: 2.2 KiB of 2.2 KiB are held, 100 B of it for"));
    size_t count = 0;
    for (const AbWarning &w : loaded->summary.warnings)
        count += contains(w.text, "no memory was saved") ? 1 : 0;
    CHECK(count == 1);
}

TEST_CASE("compare: equal bits of one experiment prove what equal hits do not") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, const std::string &commit,
                             const std::string &experiment, bool with_nll, double shift = 0) {
        std::vector<AbRecord> records;
        for (int i = 0; i < 12; ++i) {
            const std::string item = fmt::format("i{}", i);
            for (const char *arm : {"full", "window"}) {
                const std::string budget = *arm == 'f' ? "full" : "tokens:128";
                records.emplace_back(ab_item(arm, budget, item, 1));
                if (with_nll)
                    records.emplace_back(ab_item(arm, budget, item, 3.1 + 0.1 * i + shift, "nll"));
            }
        }
        AbHeader header = ab_header();
        header.commit = commit;
        header.config_hash = commit + experiment;
        header.experiment_hash = experiment;
        return test::write_ab(folder / name, header, records);
    };
    AbCompareOptions strict;
    strict.strict = true;
    const auto first = results("first", "1", "e", true);
    const AbComparison again = compare_ab(first, results("again", "2", "e", true), strict);
    CHECK(again.same_experiment);
    CHECK_FALSE(again.same_config);
    CHECK(again.passed());
    for (const AbContrast &c : again.contrasts) CHECK(c.is_equal_rerun);
    CHECK(contains(ab_comparison_text(again),
                   "4 of 4 contrasts are equal in every item, 4 of these within the "
                   "margin (4 of a rerun, equal to the bit)"));
    CHECK(ab_comparison_json(again).at("contrasts")[0].at("equal_rerun") == true);
    // Another experiment with the same hits: the hits prove nothing.
    const AbComparison other = compare_ab(first, results("other", "1", "x", true), strict);
    CHECK_FALSE(other.passed());
    CHECK(other.unproven == 2);
    // A bit differs in what is continuous: the hits are a sample again.
    const AbComparison near = compare_ab(first, results("near", "2", "e", true, 1e-9), strict);
    CHECK_FALSE(near.passed());
    // Hits alone: one program run twice is the same, two programs are not.
    const auto alone = results("alone", "1", "h", false);
    CHECK(compare_ab(alone, results("same", "1", "h", false), strict).passed());
    const AbComparison commits = compare_ab(alone, results("commit", "2", "h", false), strict);
    CHECK_FALSE(commits.passed());
    CHECK(commits.unproven == 2);
}

TEST_CASE("compare counts the noise of both experiments") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, double again, double window) {
        std::vector<AbRecord> records;
        for (int i = 0; i < 20; ++i) {
            const std::string item = fmt::format("i{}", i);
            const double own = 3 + 0.01 * (i % 5);
            records.emplace_back(ab_item("full", "full", item, own, "nll"));
            if (i < 8)
                records.emplace_back(ab_item("full#again", "full", item, own + again, "nll"));
            records.emplace_back(ab_item("window", "tokens:128", item, own + window, "nll"));
        }
        return test::write_ab(folder / name, ab_header(), records);
    };
    const auto quiet = results("quiet", 0, 0.1), worse = results("worse", 0, 0.3),
               noisy = results("noisy", 0.5, 0.3);
    CHECK(compare_ab(quiet, worse, {}).worse == 1);
    const AbComparison held = compare_ab(quiet, noisy, {});
    CHECK(held.worse == 0);
    CHECK(find_contrast(held.contrasts, "window", "window", "nll")->noise == Approx(0.5));
}
