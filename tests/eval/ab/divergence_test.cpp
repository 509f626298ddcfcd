// Tests of divergences: sizes compared with the reference, ratios between arms, and the number of
// documents that they need.
#include "eval/ab/verdicts/summary.hpp"
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
using test::made_pairs;
using test::warned;

TEST_CASE(
    "divergence from the reference is reported as a size with an interval, and never tested") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 126; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 3, "nll"));
        records.emplace_back(made_item("window", "tokens:128", name, 3.1 + 0.01 * (i % 7), "nll"));
        const double kld = 0.1 * std::exp(0.1 * (i % 21 - 10));
        records.emplace_back(made_item("window", "tokens:128", name, kld, "kld"));
        records.emplace_back(made_item("snapkv", "tokens:128", name, 0.5 * kld, "kld"));
        records.emplace_back(made_item("window", "tokens:128", name, 0.9, "top1"));
        records.emplace_back(made_item("q4cache", "full", name, i == 0 ? 0 : kld, "kld"));
        records.emplace_back(made_item("window", "tokens:128", name, 0.5, "f1"));
    }
    ab::Header header = made_header();
    header.statistics.primary = "continuation/kld";
    const auto loaded = load_ab(folder, header, records);
    const auto &contrasts = loaded->summary.contrasts;
    const ab::Contrast *c = find_contrast(contrasts, "window", "full", "kld");
    REQUIRE(c != nullptr);
    CHECK(c->implied);
    CHECK(c->verdict == ab::Verdict::size);
    CHECK_FALSE(c->planned);
    CHECK_FALSE(c->p);
    CHECK_FALSE(c->beyond_margin);
    CHECK(c->geometric);
    CHECK(c->effect == Approx(0.1).epsilon(0.02)); // the geometric mean
    CHECK(c->interval->low > 0.08);
    CHECK(c->interval->high < 0.13);
    CHECK(contains(verdict_line(*c), "; a size, the geometric mean over documents"));
    // A document without any divergence has no logarithm of the divergence.
    const ab::Contrast *zero = find_contrast(contrasts, "q4cache", "full", "kld");
    REQUIRE(zero != nullptr);
    CHECK(zero->verdict == ab::Verdict::size);
    CHECK_FALSE(zero->geometric);
    const ab::Contrast *top1 = find_contrast(contrasts, "window", "full", "top1");
    REQUIRE(top1 != nullptr);
    CHECK(top1->verdict == ab::Verdict::size);
    CHECK(top1->effect == Approx(-0.1));
    CHECK(find_contrast(contrasts, "window", "full", "f1") == nullptr);
    const auto noted = [&](const std::string &part) {
        const auto &notes = loaded->summary.notes;
        return std::any_of(notes.begin(), notes.end(),
                           [&](const std::string &note) { return contains(note, part); });
    };
    CHECK(noted("no results for continuation f1"));
    CHECK(noted("continuation/kld is a distance from the reference, so it has a size"));
    // If the primary is a whole task, there are tests of nll in addition to the sizes.
    ab::Header whole = header;
    whole.statistics.primary = "continuation";
    const auto of_task = load_ab(folder, whole, records);
    for (const std::string &note : of_task->summary.notes)
        CHECK_FALSE(contains(note, "so it has a size and no verdict"));
    // Two arms are compared by the ratio of their geometric means.
    header.contrasts = {{"snapkv", "window", ""}};
    const auto pairs = load_ab(folder, header, records);
    const ab::Contrast *pair = find_contrast(pairs->summary.contrasts, "snapkv", "window", "kld");
    REQUIRE(pair != nullptr);
    CHECK(pair->planned);
    CHECK(pair->ratio);
    CHECK(pair->effect == Approx(-0.5));
    CHECK(pair->verdict == ab::Verdict::better);
    CHECK(ab::json_of_contrasts({*pair})[0].at("effect_is") == "ratio");
}

TEST_CASE("nll needs 100 documents, has a warning for fewer, and no verdict for fewer than 50") {
    const test::TempFolder folder;
    const auto with = [&](int documents) {
        std::vector<ab::Record> records;
        for (int i = 0; i < documents; ++i) {
            const std::string name = fmt::format("i{}", i);
            records.emplace_back(made_item("full", "full", name, 3, "nll"));
            records.emplace_back(
                made_item("window", "tokens:128", name, 3.1 + 0.01 * (i % 7), "nll"));
        }
        return load_ab(folder, made_header(), records);
    };
    const auto few = with(49);
    const ab::Contrast *c = find_contrast(few->summary.contrasts, "window", "full", "nll");
    CHECK(c->verdict == ab::Verdict::too_few);
    CHECK_FALSE(c->interval);
    CHECK_FALSE(few->summary.cells[0].interval);
    CHECK(warned(few->summary, "only 49 independent documents: too few for an interval or a "
                               "verdict on nll; use at least 100"));
    const auto some = with(50);
    CHECK(find_contrast(some->summary.contrasts, "window", "full", "nll")->verdict ==
          ab::Verdict::worse);
    CHECK(some->summary.cells[0].interval);
    CHECK(warned(some->summary, "50 documents: intervals of nll hold only if the numbers of the "
                                "documents are not very skewed; use at least 100 documents"));
    const auto many = with(100);
    CHECK_FALSE(warned(many->summary, "use at least"));
    // There are too few resamples for such a small significance level.
    ab::Statistics s;
    s.resamples = 100;
    ab::Contrast one = test::made_contrast("nll");
    std::vector<double> a, b;
    for (int i = 0; i < 100; ++i) {
        b.push_back(3);
        a.push_back(3.1 + 0.01 * (i % 7));
    }
    measure_contrast(one, made_pairs(a, b), s);
    std::vector<ab::Contrast> crowd(20, one);
    settle_verdicts(crowd, s);
    CHECK_FALSE(crowd[0].interval);
    CHECK(crowd[0].verdict == ab::Verdict::not_distinguishable);
    CHECK_FALSE(crowd[0].detectable);
}

TEST_CASE("if there are too few resamples for a confidence, there is no interval") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 40; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 3 + 0.1 * i, "nll"));
        records.emplace_back(made_item("window", "tokens:128", name, 0.1 + 0.01 * i, "kld"));
    }
    ab::Header header = made_header();
    header.statistics.confidence = 0.9999;
    const auto loaded = load_ab(folder, header, records);
    const ab::Contrast *size = find_contrast(loaded->summary.contrasts, "window", "full", "kld");
    REQUIRE(size != nullptr);
    CHECK(size->is_size);
    CHECK_FALSE(size->interval);
    for (const ab::CellSummary &cell : loaded->summary.cells) CHECK_FALSE(cell.interval);
}

TEST_CASE("if only a few documents differ, the missing interval is explained") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 60; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 3, "nll"));
        records.emplace_back(made_item("window", "tokens:128", name, i == 0 ? 4 : 3, "nll"));
    }
    ab::Header header = made_header();
    header.statistics.primary = "continuation/nll";
    const auto loaded = load_ab(folder, header, records);
    const ab::Contrast *c = find_contrast(loaded->summary.contrasts, "window", "full", "nll");
    REQUIRE(c != nullptr);
    CHECK_FALSE(c->interval);
    CHECK(c->verdict == ab::Verdict::not_distinguishable);
    CHECK(warned(loaded->summary, "differs between this arm and full in too few of 60 documents"));
    CHECK_FALSE(warned(loaded->summary, "resamples"));
}

TEST_CASE("the noise of kld is a difference, and is converted for ratios") {
    const test::TempFolder folder;
    std::vector<ab::Record> records;
    for (int i = 0; i < 40; ++i) {
        const std::string name = fmt::format("i{}", i);
        records.emplace_back(made_item("full", "full", name, 0, "kld"));
        records.emplace_back(made_item("full#again", "full", name, 0.01, "kld"));
        const double kld = 0.02 + 0.0001 * (i % 7);
        records.emplace_back(made_item("window", "tokens:128", name, kld, "kld"));
        records.emplace_back(
            made_item("snapkv", "tokens:128", name, 1.3 * kld + 0.0001 * (i % 3), "kld"));
    }
    ab::Header header = made_header();
    header.statistics.primary = "continuation/kld";
    header.contrasts = {{"snapkv", "window", ""}};
    const auto loaded = load_ab(folder, header, records);
    const ab::Contrast *c = find_contrast(loaded->summary.contrasts, "snapkv", "window", "kld");
    REQUIRE(c != nullptr);
    CHECK(c->ratio);
    CHECK(c->noise == Approx(0.01 / c->mean_b)); // about 50%, not 1%
    CHECK(c->verdict == ab::Verdict::not_distinguishable);
}
