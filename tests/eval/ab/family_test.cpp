// Tests of families of planned contrasts: which contrasts are in them, and that verdicts agree with
// intervals.
#include "eval/ab/verdicts/summary.hpp"
#include "eval/stats/random.hpp"
#include "results.hpp"
#include "support/contains.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace keel;
using test::contains;
using test::find_contrast;
using test::load_ab;
using test::made_header;
using test::made_item;

TEST_CASE("unplanned contrasts do not weaken the planned ones") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 40; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 1));
        records.emplace_back(made_item("window", "tokens:128", name, i < 8 ? 0 : 1));
        records.emplace_back(made_item("window", "tokens:128", name, i < 8 ? 0 : 1, "nll"));
        for (int budget = 64; budget < 64 * 20; budget += 64)
            records.emplace_back(
                made_item("snapkv", fmt::format("tokens:{}", budget), name, i < 3 ? 0 : 1));
    }
    ab::Header header = made_header();
    header.statistics.primary = "passkey/hit";
    // With twenty planned contrasts, the interval is wider and the verdict is weaker.
    const auto crowded = load_ab(folder, header, records);
    const ab::Contrast &one = *find_contrast(crowded->summary.contrasts, "window", "full", "hit");
    CHECK(one.family_size == 20);
    CHECK(one.verdict == ab::Verdict::not_distinguishable);
    CHECK(one.interval->high >= 0);
    // A sweep compares many budgets, so it is exploratory.
    header.sweeps = {"snapkv"};
    const auto apart = load_ab(folder, header, records);
    const ab::Contrast &c = *find_contrast(apart->summary.contrasts, "window", "full", "hit");
    CHECK(c.verdict == ab::Verdict::worse);
    CHECK(c.family_size == 1);
    const ab::Contrast &swept = *find_contrast(apart->summary.contrasts, "snapkv", "full", "hit");
    CHECK(swept.verdict == ab::Verdict::exploratory);
    CHECK_FALSE(swept.p);
    CHECK(swept.interval == swept.interval_alone);
    const std::string text = ab::summary_text(apart->summary);
    CHECK(contains(text, "Planned contrasts: 1."));
    CHECK(contains(text, "Exploratory: against the reference"));
    const auto json = ab::json_of_contrasts(apart->summary.contrasts);
    for (const auto &row : json) {
        CHECK(row.at("p_adjusted").is_null() == !row.at("planned").get<bool>());
        CHECK(row.at("interval_is") ==
              (row.at("planned").get<bool>() ? "simultaneous" : "of this contrast by itself"));
    }
    // Other arms are exploratory too: their number changes nothing.
    std::vector<ab::Record> more = records;
    for (int arm = 0; arm < 30; ++arm)
        for (int i = 0; i < 40; ++i)
            more.emplace_back(
                made_item(fmt::format("more{}", arm), "tokens:128", fmt::format("i{}", i), i % 2));
    header.contrasts = {{"window", "full", ""}};
    const auto planned = load_ab(folder, header, more);
    const ab::Contrast &same = *find_contrast(planned->summary.contrasts, "window", "full", "hit");
    CHECK(same.verdict == ab::Verdict::worse);
    CHECK(same.interval == c.interval);
    CHECK(same.p_adjusted == c.p_adjusted);
    // A sweep that the plan names is planned.
    header.contrasts = {{"window", "full", ""}, {"snapkv", "full", ""}};
    CHECK(
        find_contrast(load_ab(folder, header, records)->summary.contrasts, "snapkv", "full", "hit")
            ->planned);
}

TEST_CASE("at equal bytes, contrasts are exploratory and use the noise floor") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    const auto add = [&](const std::string &arm, const std::string &budget, uint64_t bytes,
                         double value, const std::string &metric) {
        for (int i = 0; i < 60; ++i) {
            ab::Item item =
                made_item(arm, budget, fmt::format("i{}", i), value + 0.001 * (i % 3), metric);
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
    ab::Header header = made_header();
    header.statistics.primary = "passkey/hit";
    const auto loaded = load_ab(folder, header, records);
    for (const char *metric : {"hit", "nll"}) {
        const ab::Contrast &c =
            *find_contrast(loaded->summary.equal_bytes, "q4cache", "window", metric);
        CHECK(c.verdict == ab::Verdict::exploratory);
        CHECK(c.interval->low > 0.1);
        CHECK_FALSE(c.p);
        CHECK(c.noise == Approx(0.3));
    }
}

TEST_CASE("a verdict never contradicts the interval beside it, for any data") {
    Xoshiro256 random(20261125);
    const auto chance = [&] { return random.below(1'000'000) / 1e6; };
    uint64_t seen[3] = {0, 0, 0}, open = 0, within = 0, non_inferior = 0, neither = 0;
    for (int round = 0; round < 400; ++round) {
        ab::Statistics s;
        s.confidence = round % 2 == 0 ? 0.95 : 0.8;
        s.margins = {{"hit", 0.3},
                     {"f1", 0.3},
                     {"nll", 0.1},
                     {"ppl", 0.05},
                     {"decode_tokens_per_second", 0.05}};
        std::vector<ab::Contrast> all;
        const size_t members = 1 + random.below(6);
        for (size_t k = 0; k < members; ++k) {
            const char *metrics[] = {"hit", "nll", "f1", "ppl", "decode_tokens_per_second"};
            const std::string metric = metrics[random.below(5)];
            const double loss = 0.5 * chance(), gain = k == 0 ? 0 : 0.2 * chance();
            const size_t n = 3 + random.below(100);
            std::vector<double> a, b;
            for (size_t i = 0; i < n; ++i) {
                const double u = chance();
                const double step = metric == "f1" ? 0.25 * (1 + random.below(4)) : 1;
                const double base = metric == "hit" || metric == "f1" ? 1 : 2 + chance();
                b.push_back(u < loss + gain && u > loss ? base - step : base);
                a.push_back(u < loss ? base - step : base + (base == 1 ? 0 : 0.4 * chance() - 0.2));
            }
            ab::Contrast c = test::made_contrast(metric);
            measure_contrast(c, test::made_pairs(a, b), s);
            if (random.below(4) == 0) c.noise = 0.1 * chance();
            all.push_back(std::move(c));
        }
        settle_verdicts(all, s);
        for (const ab::Contrast &c : all) {
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
            if (c.verdict == ab::Verdict::better) CHECK(up);
            if (c.verdict == ab::Verdict::worse) CHECK(down);
            if (c.verdict == ab::Verdict::not_distinguishable) CHECK_FALSE((up || down));
            // The claims about the margin agree too.
            CHECK_FALSE((c.beyond_margin && c.non_inferior));
            if (c.within_margin) CHECK(c.non_inferior);
            if (c.margin) {
                const Interval band = c.margin_band();
                const bool low_in =
                    c.interval->low > band.low || (c.low_is_open && c.interval->low == band.low);
                const bool high_in = c.interval->high < band.high ||
                                     (c.high_is_open && c.interval->high == band.high);
                const bool up_is_good = c.meaning.higher_is_better;
                CHECK(c.within_margin == (low_in && high_in));
                CHECK(c.non_inferior == (up_is_good ? low_in : high_in));
                if (c.beyond_margin)
                    CHECK((up_is_good ? c.interval->high < band.low : c.interval->low > band.high));
                ++(c.within_margin ? within : c.non_inferior ? non_inferior : neither);
            }
            if (static_cast<int>(c.verdict) < 3) ++seen[static_cast<int>(c.verdict)];
            open += c.low_is_open || c.high_is_open ? 1 : 0;
        }
    }
    // Each kind of case occurred.
    for (const uint64_t count : seen) CHECK(count > 20);
    CHECK(open > 5);
    for (const uint64_t count : {within, non_inferior, neither}) CHECK(count > 20);
}
