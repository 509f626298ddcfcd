// Tests of what equal numbers prove, of the detectable effect in families, and of the noise floor.
#include "eval/ab/verdicts/compare.hpp"
#include "eval/ab/verdicts/noise.hpp"
#include "eval/ab/verdicts/summary.hpp"
#include "eval/stats/random.hpp"
#include "results.hpp"
#include "support/contains.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace keel;
using test::contains;
using test::find_contrast;
using test::load_ab;
using test::made_header;
using test::made_item;
using test::warned;

namespace {

ab::Contrast measured(const std::vector<double> &a, const std::vector<double> &b,
                      const std::string &metric) {
    ab::Contrast c = test::made_contrast(metric);
    measure_contrast(c, test::made_pairs(a, b), {});
    return c;
}

// Returns n numbers: `lost` times 0 (a miss), then 1 (a hit).
std::vector<double> hits_and_losses(size_t n, size_t lost) {
    std::vector<double> out(n, 1);
    std::fill_n(out.begin(), lost, 0);
    return out;
}

ab::Contrast settled(std::vector<ab::Contrast> all, const ab::Statistics &s = {}) {
    settle_verdicts(all, s);
    return all[0];
}

} // namespace

TEST_CASE("equal hits exclude only the losses that the interval excludes") {
    const ab::Contrast twenty =
        settled({measured(hits_and_losses(20, 0), hits_and_losses(20, 0), "hit")});
    CHECK(twenty.verdict == ab::Verdict::equal);
    CHECK(twenty.interval->low < -0.15);
    CHECK_FALSE(twenty.within_margin);
    const std::string line = verdict_line(twenty);
    CHECK(contains(line, "a is equal in every item to b on t hit: 0 [-0.161"));
    CHECK_FALSE(contains(line, "margin"));
    const std::string table = ab::contrast_table({&twenty});
    CHECK(contains(table, "equal in every item"));
    CHECK_FALSE(contains(table, "within"));
    const auto json = ab::json_of_contrasts({twenty})[0];
    CHECK(json.at("verdict") == "equal in every item");
    CHECK(json.at("within_margin") == false);
    // Shares of several questions, or means of several seeds, prove no more.
    const std::vector<double> halves(20, 0.5);
    const ab::Contrast shares = settled({measured(halves, halves, "f1")});
    CHECK(shares.verdict == ab::Verdict::equal);
    CHECK(shares.interval->low < -0.1);
    CHECK_FALSE(shares.within_margin);
    // If the interval excludes a loss, the verdict says so.
    ab::Statistics loose;
    loose.margins["hit"] = 0.2;
    CHECK(settled({measured(hits_and_losses(20, 0), hits_and_losses(20, 0), "hit")}, loose)
              .within_margin);
    CHECK(settled({measured(hits_and_losses(2000, 0), hits_and_losses(2000, 0), "hit")})
              .within_margin);
    const ab::Contrast none = settled({measured({}, {}, "hit")});
    CHECK(std::string(ab::verdict_name(none.verdict)) == "no item in common");
    CHECK_FALSE(none.within_margin);
}

TEST_CASE("the claim within the margin needs two one-sided tests, and non-inferior needs one") {
    // 40 hits: 12 are gained and 3 are lost. A gain far larger than the margin of 1 point is not
    // within the margin.
    std::vector<double> a(40, 0), b(40, 0);
    std::fill_n(a.begin(), 12, 1.0);
    std::fill_n(b.begin() + 12, 3, 1.0);
    const ab::Contrast gained = settled({measured(a, b, "hit")});
    CHECK(gained.effect == Approx(0.225));
    CHECK(gained.verdict == ab::Verdict::better);
    CHECK(gained.non_inferior);
    CHECK_FALSE(gained.within_margin);
    CHECK(*gained.p_within() == 1);
    CHECK(contains(verdict_line(gained), "; non-inferior by the margin of 1 point (p = 0.0"));
    CHECK_FALSE(contains(ab::contrast_table({&gained}), "within the margin"));
    const auto json = ab::json_of_contrasts({gained})[0];
    CHECK(json.at("non_inferior") == true);
    CHECK(json.at("within_margin") == false);
    CHECK(json.at("p_within_adjusted") == 1);
    CHECK(json.at("margin") == 0.01);

    // 400 pairs, of which 10 differ in each direction: equal within 5 points, by both tests.
    std::vector<double> c(400, 1), d(400, 1);
    std::fill_n(c.begin(), 10, 0.0);
    std::fill_n(d.begin() + 10, 10, 0.0);
    ab::Statistics s;
    s.margins["hit"] = 0.05;
    const ab::Contrast close = settled({measured(c, d, "hit")}, s);
    CHECK(close.verdict == ab::Verdict::not_distinguishable);
    CHECK(close.within_margin);
    CHECK(close.non_inferior);
    CHECK(contains(ab::contrast_table({&close}), ", within the margin"));
    CHECK(contains(verdict_line(close), "; within the margin of 5 points (p = "));
    // Holm's method adjusts the p-values. With many contrasts the same numbers are not enough.
    const ab::Contrast many = settled(std::vector<ab::Contrast>(400, measured(c, d, "hit")), s);
    CHECK(many.p_within_adjusted() == Approx(std::min(1.0, 400 * *close.p_within())));
    CHECK_FALSE(many.within_margin);
    CHECK((many.interval->low <= -0.05 || many.interval->high >= 0.05));

    // "Beyond the margin" means that the whole interval is beyond it, not only its middle.
    const ab::Contrast lost =
        settled({measured(hits_and_losses(40, 10), hits_and_losses(40, 0), "hit")}, s);
    CHECK(lost.effect == -0.25);
    CHECK(lost.beyond_margin);
    ab::Statistics wide;
    wide.margins["hit"] = 0.2;
    const ab::Contrast unsure =
        settled({measured(hits_and_losses(40, 10), hits_and_losses(40, 0), "hit")}, wide);
    CHECK(unsure.verdict == ab::Verdict::worse);
    CHECK(unsure.gain() < -0.2);
    CHECK_FALSE(unsure.beyond_margin);
    CHECK_FALSE(unsure.non_inferior);
}

TEST_CASE("each metric has its own margin in its own unit") {
    const auto parsed = [](const char *text, const char *metric) {
        return ab::parse_margin(text, ab::metric_named(metric));
    };
    CHECK(parsed("5 points", "hit") == 0.05);
    CHECK(parsed("1 point", "top1") == 0.01);
    CHECK(parsed("0.5points", "f1") == 0.005);
    CHECK(parsed("0.02 nats", "nll") == 0.02);
    CHECK(parsed("10%", "kld") == 0.1);
    CHECK(parsed("5 %", "decode_tokens_per_second") == 0.05);
    CHECK(parsed("0 points", "hit") == 0);
    for (const auto &[text, metric] :
         std::vector<std::pair<const char *, const char *>>{{"5", "hit"},
                                                            {"5%", "hit"},
                                                            {"0.02", "nll"},
                                                            {"2 points", "nll"},
                                                            {"0.1 nats", "kld"},
                                                            {"-1 points", "hit"},
                                                            {"100 points", "hit"},
                                                            {"nan points", "hit"},
                                                            {"", "hit"},
                                                            {"points", "hit"},
                                                            {"5 points more", "hit"},
                                                            {"100%", "ttft_ms"}})
        CHECK_FALSE(parsed(text, metric));
    CHECK(ab::margin_text(0.07, ab::metric_named("hit")) == "7 points");
    CHECK(ab::margin_text(0.01, ab::metric_named("hit")) == "1 point");
    CHECK(ab::margin_text(0.02, ab::metric_named("nll")) == "0.02 nats");
    CHECK(ab::margin_text(0.1, ab::metric_named("kld")) == "10%");
    CHECK(ab::margin_of({}, "hit") == 0.01);
    CHECK(ab::margin_of({}, "kld") == 0.1);
    CHECK(ab::margin_of({}, "perplexity") == 0.01);
    CHECK(ab::margin_of({}, "ttft_ms") == 0.05);
    CHECK(ab::margin_of({{"hit", 0.2}}, "hit") == 0.2);
    // In logarithms, the band of a ratio has the same width on both sides. A loss of 5% is 5%.
    ab::Contrast c = test::made_contrast("decode_tokens_per_second");
    c.ratio = true;
    c.margin = 0.05;
    CHECK(c.margin_band().low == Approx(-0.05));
    CHECK(std::log1p(c.margin_band().high) == Approx(-std::log1p(-0.05)));
    c.meaning = ab::metric_named("kld");
    CHECK(c.margin_band().high == Approx(0.05));
    CHECK(std::log1p(c.margin_band().low) == Approx(-std::log1p(0.05)));
    // A margin in % cannot be used for numbers without a ratio.
    std::vector<double> zeros(20, 0.0), other(20, 0.1);
    const ab::Contrast none = settled({measured(other, zeros, "kld")});
    CHECK_FALSE(none.margin);
    CHECK_FALSE(none.p_within());
    CHECK_FALSE(none.within_margin);
}

TEST_CASE("the detectable effect depends on the test, not on the observed spread") {
    // 60 documents in a single contrast: at least four must be lost and none won (then p is 0.046).
    // A loss of 0.090 of the documents gives this in four of five cases (binomial distribution).
    // Among 104 contrasts, thirteen must be lost, which needs a loss of 0.257.
    const auto seen = [](size_t lost, size_t family) {
        return settled(std::vector<ab::Contrast>(family, measured(hits_and_losses(60, lost),
                                                                  hits_and_losses(60, 0), "hit")))
            .detectable.value();
    };
    for (const size_t lost : {0, 1, 2}) {
        CHECK(seen(lost, 1) == Approx(0.090).margin(0.001));
        CHECK(seen(lost, 104) == Approx(0.257).margin(0.001));
    }
    CHECK_FALSE(settled(std::vector<ab::Contrast>(
                            104, measured(hits_and_losses(12, 1), hits_and_losses(12, 0), "hit")))
                    .detectable);
    // A document with several questions counts as one document.
    ab::Pairs pairs{std::vector<double>(40, 1), std::vector<double>(40, 1), {}};
    pairs.a[0] = 0;
    for (uint32_t i = 0; i < 40; ++i) pairs.clusters.push_back(i / 2);
    ab::Contrast c = test::made_contrast("hit");
    measure_contrast(c, pairs, {});
    CHECK(settled({c}).detectable.value() >
          0.15); // at least half of six of twenty documents must be lost
}

TEST_CASE("another lost document never moves an interval's end to the better side") {
    // Each document has two questions. The loop goes through no loss, one lost question, two lost
    // questions of different documents, and so on.
    double low = 0;
    for (size_t lost = 0; lost < 30; ++lost) {
        ab::Pairs pairs{std::vector<double>(400, 1), std::vector<double>(400, 1), {}};
        for (uint32_t i = 0; i < 400; ++i) pairs.clusters.push_back(i / 2);
        for (size_t i = 0; i < lost; ++i) pairs.a[2 * i] = 0;
        ab::Contrast c = test::made_contrast("hit");
        measure_contrast(c, pairs, {});
        INFO(lost << " lost");
        CHECK(c.interval->low < low);
        CHECK(c.interval->low <= c.effect);
        CHECK(c.interval->high >= c.effect);
        low = c.interval->low;
    }
    // Five documents: the interval comes from Student's t, and stays above the lowest share.
    const ab::Contrast few = measured({0, 0, 0, 0, 0.5}, {1, 1, 0.5, 1, 0.5}, "f1");
    CHECK(few.interval->low >= -1);
}

TEST_CASE("the detectable effect uses the same level as the verdict, in every family") {
    const ab::Contrast lost = measured(hits_and_losses(30, 7), hits_and_losses(30, 0), "hit");
    const ab::Contrast alone = settled({lost}),
                       of_many = settled(std::vector<ab::Contrast>(12, lost));
    CHECK(alone.verdict == ab::Verdict::worse);
    CHECK(of_many.verdict == ab::Verdict::not_distinguishable);
    // The interval next to a verdict is adjusted like the verdict.
    CHECK(of_many.interval_alone == alone.interval);
    CHECK(of_many.interval->high >= 0);
    REQUIRE(of_many.detectable);
    CHECK(*of_many.detectable > *alone.detectable);
    // No effect is "not distinguishable" and also larger than the detectable effect.
    for (const size_t n : {6, 8, 12, 20, 30, 60, 200})
        for (const size_t of : {0, 1, 3, 5, 6, 9, 20, 100})
            for (const size_t family : {1, 4, 40}) {
                if (of > n) continue;
                ab::Contrast c = settled(std::vector<ab::Contrast>(
                    family, measured(hits_and_losses(n, of), hits_and_losses(n, 0), "hit")));
                INFO(n << " hits, " << of << " lost, among " << family);
                if (c.verdict == ab::Verdict::not_distinguishable && c.detectable)
                    CHECK(std::abs(c.effect) <= *c.detectable);
                if (c.verdict == ab::Verdict::worse) CHECK(c.detectable);
                c.noise = 0.9; // the noise floor changes the verdict in this case
                const ab::Contrast held = settled({c});
                if (held.verdict == ab::Verdict::not_distinguishable && held.detectable)
                    CHECK(std::abs(held.effect) <= *held.detectable);
            }
    // Ten documents reach p = 0.0016: enough for 30 contrasts, not for 40.
    const ab::Contrast ten = measured(hits_and_losses(10, 10), hits_and_losses(10, 0), "hit");
    CHECK(settled(std::vector<ab::Contrast>(30, ten)).verdict == ab::Verdict::worse);
    CHECK(settled(std::vector<ab::Contrast>(30, ten)).detectable);
    const ab::Contrast among = settled(std::vector<ab::Contrast>(40, ten));
    CHECK(among.verdict == ab::Verdict::not_distinguishable);
    CHECK_FALSE(among.detectable);
    CHECK(contains(ab::contrast_table({&among}), "not distinguishable (too few documents)"));
    // Nine documents are too few for any verdict.
    const ab::Contrast nine =
        settled({measured(hits_and_losses(9, 9), hits_and_losses(9, 0), "hit")});
    CHECK(nine.verdict == ab::Verdict::too_few);
    CHECK_FALSE(nine.p);
    CHECK_FALSE(nine.beyond_margin);
    CHECK(contains(verdict_line(nine), "; too few documents for a verdict"));
}

TEST_CASE(
    "the noise floor is the distance between two runs, not the uncertainty of few documents") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 60; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 1));
        records.emplace_back(made_item("window", "tokens:128", name, i < 20 ? 0 : 1));
        if (i < 8) records.emplace_back(made_item("full#again", "full", name, i == 0 ? 0 : 1));
    }
    const auto loaded = load_ab(folder, made_header(), records);
    const ab::Contrast &c = *find_contrast(loaded->summary.contrasts, "window", "full", "hit");
    CHECK(c.noise == Approx(1.0 / 8));
    // a third is lost; an interval over 8 documents would have reached to 0.5
    CHECK(c.verdict == ab::Verdict::worse);
    CHECK(warned(loaded->summary, "two runs of the reference differ in 1 of 8"));
    // Changes that cancel out in the mean are noise too.
    ab::Names names;
    ab::Cell a, b;
    a.kind = b.kind = ab::metric_named("hit");
    for (uint32_t i = 0; i < 4; ++i) {
        a.points.push_back({i, i, i < 2 ? 1.0 : 0.0, 0, -1, 1});
        b.points.push_back({i, i, i % 2 == 0 ? 1.0 : 0.0, 0, -1, 1});
        names.number(fmt::format("{}", i));
    }
    CHECK(ab::mean_distance(a, b, names).size == 0.5);
}

TEST_CASE("there is a warning for an arm with a smaller dtype that evicts but frees nothing") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 12; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 1));
        ab::Item masked = made_item("q4cache", "tokens:128", name, 1);
        // of 8000 bytes in the reference's types
        masked.kv_bytes = masked.own_full_kv_bytes = 2250;
        masked.policy_bytes = 100;
        records.emplace_back(masked);
        ab::Item honest = made_item("snapkv", "tokens:128", name, 1);
        honest.own_full_kv_bytes = 4250;
        records.emplace_back(honest);
    }
    const auto loaded = load_ab(folder, made_header(), records);
    CHECK(warned(loaded->summary,
                 "no memory was saved: the arm holds 2.2 KiB of 2.2 KiB, 100 B of it for"));
    size_t count = 0;
    for (const ab::Warning &w : loaded->summary.warnings)
        count += contains(w.text, "no memory was saved") ? 1 : 0;
    CHECK(count == 1);
}

TEST_CASE("compare: bitwise equal runs of one experiment prove more than equal hits") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, const std::string &commit,
                             const std::string &experiment, bool with_nll, double shift = 0) {
        std::vector<ab::Record> records;
        for (int i = 0; i < 60; ++i) { // with fewer documents, nll would prove nothing
            const std::string item = fmt::format("i{}", i);
            for (const char *arm : {"full", "window"}) {
                const std::string budget = *arm == 'f' ? "full" : "tokens:128";
                records.emplace_back(made_item(arm, budget, item, 1));
                if (with_nll)
                    records.emplace_back(
                        made_item(arm, budget, item, 3.1 + 0.1 * i + shift, "nll"));
            }
        }
        ab::Header header = made_header();
        header.commit = commit;
        header.config_hash = commit + experiment;
        header.experiment_hash = experiment;
        return test::write_ab(folder / name, header, records);
    };
    ab::CompareOptions strict;
    strict.strict = true;
    const auto first = results("first", "1", "e", true);
    const ab::Comparison again =
        ab::compare_results(first, results("again", "2", "e", true), strict);
    CHECK(again.same_experiment);
    CHECK_FALSE(again.same_config);
    CHECK(again.passed());
    for (const ab::Contrast &c : again.contrasts) CHECK(c.is_equal_rerun);
    CHECK(contains(ab::text_of_comparison(again),
                   "4 of 4 contrasts are equal in every item, 4 of these non-inferior (4 of a "
                   "rerun, equal to the bit)"));
    CHECK(ab::comparison_json(again).at("contrasts")[0].at("equal_rerun") == true);
    // Another experiment with the same hits: here equal hits prove nothing.
    const ab::Comparison other =
        ab::compare_results(first, results("other", "1", "x", true), strict);
    CHECK_FALSE(other.passed());
    CHECK(other.unproven == 2);
    // A continuous metric differs in one bit. So it is no longer the same run, and the hits are
    // only a sample.
    const ab::Comparison near =
        ab::compare_results(first, results("near", "2", "e", true, 1e-9), strict);
    CHECK_FALSE(near.passed());
    // If there are only hits, two runs of one program are the same, but runs of two programs are
    // not.
    const auto alone = results("alone", "1", "h", false);
    CHECK(ab::compare_results(alone, results("same", "1", "h", false), strict).passed());
    const ab::Comparison commits =
        ab::compare_results(alone, results("commit", "2", "h", false), strict);
    CHECK_FALSE(commits.passed());
    CHECK(commits.unproven == 2);
}

TEST_CASE("compare uses the noise of both experiments") {
    const test::TempFolder folder;
    const auto results = [&](const std::string &name, double again, double window) {
        std::vector<ab::Record> records;
        for (int i = 0; i < 60; ++i) {
            const std::string item = fmt::format("i{}", i);
            const double own = 3 + 0.01 * (i % 5);
            records.emplace_back(made_item("full", "full", item, own, "nll"));
            if (i < 8)
                records.emplace_back(made_item("full#again", "full", item, own + again, "nll"));
            records.emplace_back(made_item("window", "tokens:128", item, own + window, "nll"));
        }
        return test::write_ab(folder / name, made_header(), records);
    };
    const auto quiet = results("quiet", 0, 0.1), worse = results("worse", 0, 0.3),
               noisy = results("noisy", 0.5, 0.3);
    CHECK(ab::compare_results(quiet, worse, {}).worse == 1);
    const ab::Comparison held = ab::compare_results(quiet, noisy, {});
    CHECK(held.worse == 0);
    CHECK(find_contrast(held.contrasts, "window", "window", "nll")->noise == Approx(0.5));
}
