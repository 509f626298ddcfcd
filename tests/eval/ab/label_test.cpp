// Results that may have no verdict: the plan was changed, or an early look.
#include "eval/ab/records/merge.hpp"
#include "eval/ab/report/report.hpp"
#include "eval/ab/verdicts/compare.hpp"
#include "eval/ab/verdicts/labels.hpp"
#include "results.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

using namespace keel;
using namespace keel::test;

namespace {

namespace fs = std::filesystem;

// A header with the plan that fits it. `items`: of the task passkey.
ab::Header planned_header(uint64_t items, std::vector<ab::PlanChange> changes = {}) {
    ab::Header h = made_header();
    h.arms = {{"full", ""}, {"window", ""}};
    h.experiment_hash = "fedcba9876543210";
    h.statistics.primary = "passkey/hit";
    h.statistics.margins = {{"hit", 0.05}};
    ab::PlanRecord plan;
    plan.entries = {{"hypotheses", "window at tokens:128 against full"},
                    {"primary", "passkey/hit"},
                    {"contrasts", "window against full on passkey/hit"},
                    {"margins hit", "5 points"},
                    {"statistics confidence", "0.95"},
                    {"statistics resamples", "1000"},
                    {"statistics seed", "1"},
                    {"statistics looks", "none"},
                    {"tasks passkey items", fmt::format("{}", items)},
                    {"experiment reference", "full"},
                    {"experiment hash", h.experiment_hash}};
    plan.hash = ab::plan_hash(plan.entries);
    plan.changes = std::move(changes);
    h.plan = plan;
    return h;
}

// 40 documents, of which `window` loses the first 12.
std::vector<ab::Record> hits() {
    std::vector<ab::Record> all;
    for (int i = 0; i < 40; ++i) {
        all.emplace_back(made_item("full", "full", fmt::format("{}", i), 1));
        all.emplace_back(made_item("window", "tokens:128", fmt::format("{}", i), i < 12 ? 0 : 1));
    }
    return all;
}

const std::vector<ab::PlanChange> change = {{"margins hit", "5 points", "6 points"}};

} // namespace

TEST_CASE("complete results under a plan have verdicts, and name the plan") {
    const TempFolder folder;
    const ab::Header header = planned_header(40);
    const auto loaded = load_ab(folder, header, hits());
    const ab::Contrast *c = find_contrast(loaded->summary.contrasts, "window", "full");
    REQUIRE(c != nullptr);
    CHECK(c->verdict == ab::Verdict::worse);
    CHECK(c->label.empty());
    CHECK(contains(ab::summary_text(loaded->summary), "Plan " + header.plan->hash + ", frozen"));
    CHECK(loaded->table.header.plan->entries == header.plan->entries);
}

TEST_CASE("results without a plan have verdicts, and one line says that there is no plan") {
    const TempFolder folder;
    const auto loaded = load_ab(folder, made_header(), hits());
    CHECK(find_contrast(loaded->summary.contrasts, "window", "full")->verdict ==
          ab::Verdict::worse);
    const std::string text = ab::summary_text(loaded->summary);
    CHECK(contains(text, "No plan was frozen"));
    CHECK(text.find("No plan was frozen") == text.rfind("No plan was frozen"));
}

TEST_CASE("a changed plan labels every result of every table, and gives no verdict") {
    const TempFolder folder;
    const auto loaded = load_ab(folder, planned_header(40, change), hits());
    const ab::Summary &s = loaded->summary;
    for (const auto *list : {&s.contrasts, &s.equal_bytes, &s.noise}) {
        for (const ab::Contrast &c : *list) {
            CHECK(c.label == ab::changed_plan_label);
            CHECK_FALSE(c.planned);
            CHECK_FALSE(c.p.has_value());
            CHECK(c.verdict == ab::Verdict::exploratory);
        }
    }
    const std::string text = ab::summary_text(s);
    CHECK(contains(text, "WAS CHANGED"));
    CHECK(contains(text, "margins hit: planned '5 points', now '6 points'"));
    CHECK(contains(text, ab::changed_plan_label));
    CHECK_FALSE(contains(text, "worse"));
    const auto json = ab::summary_json(s);
    CHECK(json.at("contrasts").at(0).at("label") == ab::changed_plan_label);
    CHECK(json.at("contrasts").at(0).at("verdict") == "exploratory");
    CHECK(contains(ab::report_html(loaded->table, loaded->names, s), ab::changed_plan_label));
}

TEST_CASE("fewer items than planned are an early look without a verdict") {
    const TempFolder folder;
    const auto loaded = load_ab(folder, planned_header(60), hits());
    const ab::Contrast *c = find_contrast(loaded->summary.contrasts, "window", "full");
    REQUIRE(c != nullptr);
    CHECK(c->label == "early look: 40 of 60 items");
    CHECK(c->verdict == ab::Verdict::exploratory);
    CHECK_FALSE(c->p.has_value());
    CHECK(c->interval.has_value());
    CHECK(contains(ab::verdict_line(*c), "early look: 40 of 60 items"));
    CHECK(contains(ab::summary_text(loaded->summary), "early look: 40 of 60 items"));
    for (const std::string &note : loaded->summary.notes) CHECK_FALSE(contains(note, "no results"));
}

TEST_CASE("a comparison with a changed plan or an early look has no verdict") {
    const TempFolder folder;
    write_ab(folder / "whole", planned_header(40), hits());
    write_ab(folder / "changed", planned_header(40, change), hits());
    write_ab(folder / "early", planned_header(60), hits());
    const auto compare = [&](const char *second) {
        return ab::compare_results(folder / "whole", folder / second, {});
    };
    CHECK(compare("whole").passed());
    CHECK(compare("whole").label.empty());
    for (const auto &[second, label] : std::vector<std::pair<const char *, std::string>>{
             {"changed", ab::changed_plan_label}, {"early", "early look: 40 of 60 items"}}) {
        const ab::Comparison c = compare(second);
        CHECK(c.label == label);
        CHECK_FALSE(c.passed());
        CHECK(c.decided == 0);
        CHECK(contains(text_of_comparison(c), "no verdict: " + label));
        CHECK(comparison_json(c).at("label") == label);
    }
}

TEST_CASE("an edited header is refused if it contradicts its plan") {
    const TempFolder folder;
    const fs::path good = write_ab(folder / "good", planned_header(40), hits()) / "results.jsonl";
    std::ifstream in(good);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto refusal = [&](const std::string &from, const std::string &to) {
        std::string edited = text;
        REQUIRE(contains(edited, from));
        edited.replace(edited.find(from), from.size(), to);
        folder.write("edited.jsonl", edited);
        return error_text([&] { ab::read_header(folder / "edited.jsonl"); });
    };
    for (const auto &[from, to] : std::vector<std::pair<std::string, std::string>>{
             {"\"hit\":0.05", "\"hit\":0.1"},
             {"\"confidence\":0.95", "\"confidence\":0.8"},
             {"\"contrasts\":[]", "\"contrasts\":[[\"window\",\"full\",\"passkey/other\"]]"},
             {"\"primary\":\"passkey/hit\"", "\"primary\":\"facts/hit\""},
             {"fedcba9876543210", "0000000000000000"},
             {"\"5 points\"", "\"9 points\""},
             {"[\"tasks passkey items\",\"40\"]", "[\"tasks passkey items\",\"4\"]"}}) {
        INFO(from);
        const std::string found = refusal(from, to);
        CHECK(contains(found, "the header contradicts the plan in the header"));
    }
    CHECK(contains(refusal("\"entries\":[", "\"entries\":[3,"), "expected"));
}

TEST_CASE("shards of different plans are not merged") {
    const TempFolder folder;
    ab::Header first = planned_header(40), second = planned_header(40, change),
               none = made_header();
    none.experiment_hash = first.experiment_hash;
    first.shards = second.shards = none.shards = 2;
    second.shard = none.shard = 2;
    write_ab(folder / "1", first, hits());
    write_ab(folder / "2", second, hits());
    write_ab(folder / "3", none, hits());
    for (const char *other : {"2", "3"})
        CHECK(contains(error_text([&] {
                           ab::merge_shards({folder / "1", folder / other}, folder / "out");
                       }),
                       "with the same --plan"));
}
