#include "eval/ab/verdicts/summary.hpp"
#include "results.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
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
using test::made_pairs;
using test::warned;

namespace {

ab::Contrast judged(const ab::Pairs &p, const std::string &metric, ab::Statistics s = {}) {
    ab::Contrast c = test::made_contrast(metric);
    c.a_budget = "tokens:128";
    c.b_budget = "full";
    s.resamples = 1000;
    measure_contrast(c, p, s);
    std::vector<ab::Contrast> all{c};
    settle_verdicts(all, s);
    return all[0];
}

std::vector<double> repeated(size_t n, double value) { return std::vector<double>(n, value); }

} // namespace

TEST_CASE("the name of a metric decides which direction is better") {
    CHECK(ab::metric_named("hit").higher_is_better);
    CHECK(ab::metric_named("top1").kind == ab::Metric::Kind::quality);
    CHECK_FALSE(ab::metric_named("nll").higher_is_better);
    CHECK_FALSE(ab::metric_named("kld").higher_is_better);
    CHECK(ab::metric_named("kld").ratio);
    CHECK_FALSE(ab::metric_named("nll").ratio);
    CHECK(ab::metric_named("perplexity").ratio);
    CHECK(ab::metric_named("decode_tokens_per_second").higher_is_better);
    CHECK(ab::metric_named("decode_tokens_per_second").ratio);
    CHECK_FALSE(ab::metric_named("ttft_ms").higher_is_better);
    CHECK_FALSE(ab::metric_named("decode_ms_p99").higher_is_better);
    CHECK(ab::metric_named("decode_ms_p99").kind == ab::Metric::Kind::speed);
    CHECK(ab::metric_named("peak_kv_bytes").kind == ab::Metric::Kind::memory);
    CHECK(ab::metric_named("terms").kind ==
          ab::Metric::Kind::quality); // "ms" must be a word of its own
}

TEST_CASE("hits have McNemar's score test, an interval with a width, and a verdict") {
    // 40 items: 10 are lost and none is won.
    std::vector<double> a = repeated(40, 1);
    for (size_t i = 0; i < 10; ++i) a[i] = 0;
    const ab::Contrast lost = judged(made_pairs(a, repeated(40, 1)), "hit");
    CHECK(lost.method == "score (McNemar, Tango)");
    // p of the normal distribution for the square root of 10
    CHECK(*lost.p == Approx(std::erfc(std::sqrt(10.0 / 2))));
    CHECK(lost.effect == Approx(-0.25));
    CHECK(lost.verdict == ab::Verdict::worse);
    CHECK(lost.beyond_margin);
    CHECK_FALSE(lost.within_margin);
    CHECK(lost.interval == lost.interval_alone); // the family has one contrast
    CHECK(lost.interval->high < 0);
    CHECK(contains(verdict_line(lost), "a at tokens:128 is worse than b on t hit: -0.250 [-0.4"));
    CHECK(contains(verdict_line(lost),
                   "40 items in 40 documents; an experiment of this size could have seen 0."));

    const ab::Contrast equal = judged(made_pairs(repeated(40, 1), repeated(40, 1)), "hit");
    CHECK(equal.verdict == ab::Verdict::equal);
    CHECK(equal.identical == 40);
    CHECK_FALSE(equal.within_margin); // forty equal hits do not exclude a loss of one in a hundred
    CHECK(equal.interval->low < -0.05);
    CHECK(*equal.detectable > 0.05);

    // Two of forty differ, one in each direction: this proves nothing.
    std::vector<double> one = repeated(40, 1), other = repeated(40, 1);
    one[0] = 0;
    other[1] = 0;
    const ab::Contrast close = judged(made_pairs(one, other), "hit");
    CHECK(close.verdict == ab::Verdict::not_distinguishable);
    CHECK_FALSE(close.within_margin);
    CHECK(close.effect == 0);

    ab::Statistics loose;
    loose.margins["hit"] = 0.2;
    CHECK(judged(made_pairs(one, other), "hit", loose).within_margin);
}

TEST_CASE("for divergences lower is better, and a gain is reported as a gain") {
    std::vector<double> a, b;
    for (int i = 0; i < 60; ++i) {
        b.push_back(3 + 0.1 * (i % 7));
        a.push_back(b.back() + 0.2 + 0.01 * (i % 5));
    }
    const ab::Contrast worse = judged(made_pairs(a, b), "nll");
    CHECK(worse.verdict == ab::Verdict::worse);
    CHECK(worse.effect == Approx(0.22));
    CHECK(worse.gain() < 0);
    CHECK(worse.method == "t, bootstrap t");
    CHECK(worse.beyond_margin); // the loss is at least 0.2 nats, and the margin is 0.01
    const ab::Contrast better = judged(made_pairs(b, a), "nll");
    CHECK(better.verdict == ab::Verdict::better);
    CHECK(better.non_inferior);
    CHECK_FALSE(better.within_margin); // a gain of 0.2 nats is not an equal result
}

TEST_CASE("speeds are compared as ratios of trimmed means, because rounds may be disturbed") {
    const ab::Contrast c = judged(made_pairs({110, 111, 109, 110, 110}, {100, 101, 100, 99, 100}),
                                  "decode_tokens_per_second");
    CHECK(c.ratio);
    CHECK(c.method == "trimmed t");
    CHECK(c.effect == Approx(0.1).margin(0.005));
    CHECK(c.verdict == ab::Verdict::better);
    // The machine was disturbed in one round. This changes neither the verdict nor the effect that
    // is shown.
    const ab::Contrast disturbed = judged(
        made_pairs({110, 111, 109, 110, 22}, {100, 101, 100, 99, 100}), "decode_tokens_per_second");
    CHECK(disturbed.effect == Approx(0.1).margin(0.01));
    CHECK(disturbed.mean_a == Approx(110).margin(1));
    CHECK(disturbed.verdict == ab::Verdict::better);
    // Two rounds that differ this much cannot detect an effect of a realistic size.
    const ab::Contrast two = judged(made_pairs({150, 60}, {100, 101}), "decode_tokens_per_second");
    CHECK(two.verdict == ab::Verdict::not_distinguishable);
    CHECK_FALSE(two.detectable);
    CHECK(contains(verdict_line(two), "can show no effect"));
    // Numbers without a logarithm are compared by their differences.
    CHECK_FALSE(judged(made_pairs({0, 1, 2}, {1, 1, 1}), "ttft_ms").ratio);
}

TEST_CASE("too few documents for a verdict are reported") {
    const ab::Contrast none = judged(made_pairs({}, {}), "hit");
    CHECK(none.items == 0);
    CHECK_FALSE(none.p);
    CHECK_FALSE(none.interval);
    CHECK_FALSE(none.within_margin);
    CHECK(contains(verdict_line(none), "no item of t hit in common"));
    const ab::Contrast one = judged(made_pairs({1}, {0}), "hit");
    CHECK(one.verdict == ab::Verdict::too_few);
    CHECK_FALSE(one.detectable);
    CHECK(contains(verdict_line(one), "too few documents for a verdict"));
    const ab::Contrast three = judged(made_pairs({1, 1, 1.1}, {5, 5, 5}), "nll");
    CHECK(three.verdict == ab::Verdict::too_few);
    CHECK_FALSE(three.p);
    CHECK_FALSE(three.detectable);
    // Many items of one document count as one document.
    ab::Pairs same = made_pairs(repeated(50, 0), repeated(50, 1));
    same.clusters.assign(50, 7);
    const ab::Contrast clustered = judged(same, "hit");
    CHECK(clustered.clusters == 1);
    CHECK(clustered.verdict == ab::Verdict::too_few);
    CHECK(clustered.interval->high > -1);
}

TEST_CASE("Holm's adjustment is per family, and the noise floor limits verdicts") {
    std::vector<double> a = repeated(30, 1);
    for (size_t i = 0; i < 7; ++i) a[i] = 0;
    ab::Contrast c = test::made_contrast("hit");
    measure_contrast(c, made_pairs(a, repeated(30, 1)), {});
    std::vector<ab::Contrast> one{c}, four(4, c), noisy{c}, two_families{c, c};
    settle_verdicts(one, {});
    CHECK(one[0].verdict == ab::Verdict::worse);
    CHECK_FALSE(one[0].high_is_open);
    settle_verdicts(four, {});
    CHECK(four[0].p_adjusted == Approx(4 * *one[0].p));
    CHECK(four[0].family_size == 4);
    CHECK(four[0].interval->low < one[0].interval->low); // simultaneous intervals are wider
    CHECK(four[0].interval_alone == one[0].interval);
    std::vector<ab::Contrast> many(8, c);
    settle_verdicts(many, {});
    CHECK(many[0].verdict == ab::Verdict::not_distinguishable);
    CHECK(many[0].interval->high >= 0);
    noisy[0].noise = 0.5;
    settle_verdicts(noisy, {});
    CHECK(noisy[0].verdict == ab::Verdict::not_distinguishable);
    two_families[1].family = "y";
    settle_verdicts(two_families, {});
    CHECK(two_families[0].p_adjusted == *one[0].p);
}

TEST_CASE("pairs are matched by item, and items that an arm lacks are counted and reported") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 20; ++i) {
        const std::string name = fmt::format("i{}", i);
        if (i != 3) records.emplace_back(made_item("full", "full", name, 1));
        if (i < 18) records.emplace_back(made_item("window", "tokens:128", name, i % 2));
    }
    const auto loaded = load_ab(folder, made_header(), records);
    const ab::Contrast *c = find_contrast(loaded->summary.contrasts, "window", "full");
    REQUIRE(c != nullptr);
    CHECK(c->items == 17);
    CHECK(c->only_a == 1);
    CHECK(c->only_b == 2);
    CHECK(warned(loaded->summary, "3 of 20 items of hit are not in both"));
    CHECK(warned(loaded->summary, "noise floor is not known"));
}

TEST_CASE("seeds are averaged before items are paired, and a repeated record counts once") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 12; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 1));
        for (const uint64_t seed : {1, 2, 3, 4}) {
            ab::Item item = made_item("window", "tokens:128", name, seed == 1 ? 1 : 0);
            item.seed = seed;
            records.emplace_back(item);
        }
    }
    ab::Item again = made_item("full", "full", "i0", 1);
    records.emplace_back(again);
    again.value = 0;
    records.emplace_back(again);
    const auto loaded = load_ab(folder, made_header(), records);
    const ab::Contrast *c = find_contrast(loaded->summary.contrasts, "window", "full");
    REQUIRE(c != nullptr);
    CHECK(c->items == 12);
    CHECK(c->mean_a == Approx(0.25));
    CHECK(c->mean_b == 1);
    CHECK_FALSE(c->yes_no);
    CHECK(c->method == "score, shares");
    CHECK(warned(loaded->summary, "recorded twice with different hit (for example 'i0')"));
}

TEST_CASE("there are warnings if nothing was evicted, nothing was saved, or the reference fails") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 12; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, i % 2));
        ab::Item idle = made_item("window", "tokens:900", name, i % 2);
        idle.evictions = 0;
        records.emplace_back(idle);
        ab::Item masked = made_item("snapkv", "tokens:128", name, i % 2);
        masked.kv_bytes = masked.full_kv_bytes;
        records.emplace_back(masked);
        records.emplace_back(made_item("full#again", "full", name, i == 0 ? 1 : i % 2));
    }
    const auto loaded = load_ab(folder, made_header(), records);
    CHECK(warned(loaded->summary, "nothing was evicted"));
    CHECK(warned(loaded->summary, "no memory was saved"));
    CHECK(warned(loaded->summary, "reaches only 0.500"));
    CHECK(warned(loaded->summary, "two runs of the reference differ in 1 of 12"));
    REQUIRE(loaded->summary.noise.size() == 1);
    CHECK(find_contrast(loaded->summary.contrasts, "window", "full")->noise > 0);
    CHECK(find_contrast(loaded->summary.contrasts, "full#again", "full") == nullptr);
    const std::string text = ab::summary_text(loaded->summary);
    CHECK(contains(text, "warning: window, tokens:900, passkey: nothing was evicted"));
    for (const char *line = text.c_str(); *line != 0; ++line)
        CHECK(((*line >= ' ') || *line == '\n'));
}

TEST_CASE(
    "the planned contrasts are the listed ones, or each arm against the reference on one metric") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 12; ++i)
        for (const char *arm : {"full", "window", "snapkv", "q4cache"})
            for (const char *metric : {"hit", "nll"})
                records.emplace_back(made_item(arm,
                                               std::string(arm) == "full" ? "full" : "tokens:128",
                                               fmt::format("i{}", i), i % 3 == 0 ? 0 : 1, metric));
    ab::Header header = made_header();
    const auto all = load_ab(folder, header, records);
    const auto count = [](const ab::Summary &s, ab::Contrast::Kind kind, bool planned) {
        return std::count_if(s.contrasts.begin(), s.contrasts.end(), [&](const ab::Contrast &c) {
            return c.kind == kind && c.planned == planned;
        });
    };
    using Kind = ab::Contrast::Kind;
    CHECK(all->summary.primary == "passkey/hit"); // the first metric
    CHECK(count(all->summary, Kind::reference, true) == 3);
    CHECK(count(all->summary, Kind::reference, false) == 3);
    CHECK(count(all->summary, Kind::pair, true) == 0);
    CHECK(count(all->summary, Kind::pair, false) == 6);
    header.contrasts = {{"window", "snapkv", ""}, {"full", "q4cache", "continuation/nll"}};
    header.statistics.primary = "passkey/hit";
    const auto declared = load_ab(folder, header, records);
    CHECK(count(declared->summary, Kind::pair, true) == 1);
    CHECK(count(declared->summary, Kind::pair, false) == 1); // nll of the same pair
    CHECK(count(declared->summary, Kind::reference, true) == 1);
    const ab::Contrast *c = find_contrast(declared->summary.contrasts, "window", "snapkv");
    REQUIRE(c != nullptr);
    CHECK(c->planned);
    CHECK(c->family_size == 2);
    CHECK(find_contrast(declared->summary.contrasts, "q4cache", "full", "nll")->planned);
    CHECK_FALSE(find_contrast(declared->summary.contrasts, "q4cache", "full", "hit")->planned);
    // A planned contrast that was not measured is reported.
    header.contrasts = {{"window", "snapkv", "speed/ttft_ms"}};
    CHECK(contains(load_ab(folder, header, records)->summary.notes.back(),
                   "the planned contrast of window and snapkv on speed/ttft_ms is missing"));
}

TEST_CASE("speeds are compared for each length") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (const int64_t length : {0, 512})
        for (int i = 0; i < 5; ++i)
            for (const char *arm : {"full", "window"}) {
                ab::Item item = made_item(arm, std::string(arm) == "full" ? "full" : "tokens:128",
                                          fmt::format("{}/{}", length, i),
                                          (length == 512 && arm[0] == 'w' ? 150 : 100) + i,
                                          "decode_tokens_per_second");
                item.length = length;
                records.emplace_back(item);
            }
    ab::Header header = made_header();
    const auto unplanned = load_ab(folder, header, records);
    REQUIRE(unplanned->summary.contrasts.size() == 2);
    CHECK(unplanned->summary.contrasts[1].verdict == ab::Verdict::exploratory);
    header.statistics.primary = "continuation/decode_tokens_per_second";
    const auto loaded = load_ab(folder, header, records);
    REQUIRE(loaded->summary.contrasts.size() == 2);
    CHECK(loaded->summary.contrasts[0].length == 0);
    CHECK(loaded->summary.contrasts[0].verdict == ab::Verdict::equal);
    CHECK(loaded->summary.contrasts[1].length == 512);
    CHECK(loaded->summary.contrasts[1].verdict == ab::Verdict::better);
    CHECK(loaded->summary.contrasts[1].family_size == 2);
    CHECK(loaded->summary.speeds.size() == 4);
}

TEST_CASE("rates of items that share documents have wider intervals") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int document = 0; document < 12; ++document)
        for (int i = 0; i < 5; ++i) {
            ab::Item item =
                made_item("full", "full", fmt::format("{}/{}", document, i), document % 2);
            records.emplace_back(item);
            item.arm = "window";
            item.document = fmt::format("d{}", document);
            records.emplace_back(item);
        }
    const auto loaded = load_ab(folder, made_header(), records);
    REQUIRE(loaded->summary.cells.size() == 2);
    const ab::CellSummary &alone = loaded->summary.cells[0], &shared = loaded->summary.cells[1];
    CHECK(alone.clusters == 60);
    CHECK(shared.clusters == 12);
    CHECK(shared.interval->high - shared.interval->low >
          1.8 * (alone.interval->high - alone.interval->low));
}
