// Early looks under the rule of a plan: alpha spending, and the record of looks.
#include "eval/ab/report/report.hpp"
#include "eval/ab/verdicts/looks.hpp"
#include "eval/stats/distributions.hpp"
#include "eval/stats/group_sequential.hpp"
#include "results.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>

using namespace keel;
using namespace keel::test;

namespace {

namespace fs = std::filesystem;

double boundary_of(const std::vector<double> &fractions) {
    return -normal_quantile(0.5 * SpendingLooks(fractions).nominal(0.05));
}

// A plan with a rule for looks. `items`: of the task passkey.
ab::Header header_with_rule(uint64_t items) {
    ab::Header h = made_header();
    h.arms = {{"full", ""}, {"window", ""}};
    h.experiment_hash = "fedcba9876543210";
    h.statistics.primary = "passkey/hit";
    h.statistics.looks = ab::Looks::obrien_fleming;
    ab::PlanRecord plan;
    plan.entries = {{"primary", "passkey/hit"},
                    {"contrasts", "window against full on passkey/hit"},
                    {"statistics confidence", "0.95"},
                    {"statistics resamples", "1000"},
                    {"statistics seed", "1"},
                    {"statistics looks", "obrien_fleming"},
                    {"tasks passkey items", fmt::format("{}", items)},
                    {"experiment reference", "full"},
                    {"experiment hash", h.experiment_hash}};
    plan.hash = ab::plan_hash(plan.entries);
    h.plan = plan;
    return h;
}

// The first `n` documents, of which `window` loses the first `lost`.
std::vector<ab::Record> first_documents(int n, int lost) {
    std::vector<ab::Record> all;
    for (int i = 0; i < n; ++i) {
        const std::string name = fmt::format("{}", i);
        all.emplace_back(made_item("full", "full", name, 1));
        all.emplace_back(made_item("window", "tokens:128", name, i < lost ? 0 : 1));
    }
    return all;
}

// Replaces the results of a folder, as a run that went on does, and reports.
std::string report(const fs::path &folder, const ab::Header &header, int n, int lost) {
    fs::remove(folder / "results.jsonl");
    write_ab(folder, header, first_documents(n, lost));
    return ab::write_report(folder);
}

size_t count_looks(const fs::path &folder) {
    std::ifstream in(folder / ab::LookBook::file_name);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

} // namespace

TEST_CASE("the boundaries are those of Lan and DeMets") {
    // Four equal looks at 5%, two-sided, O'Brien-Fleming-type spending.
    CHECK(boundary_of({0.25}) == Approx(4.333).epsilon(0.001));
    CHECK(boundary_of({0.25, 0.5}) == Approx(2.963).epsilon(0.001));
    CHECK(boundary_of({0.25, 0.5, 0.75}) == Approx(2.359).epsilon(0.001));
    CHECK(boundary_of({0.25, 0.5, 0.75, 1}) == Approx(2.014).epsilon(0.001));
    CHECK(boundary_of({0.5, 1}) == Approx(1.969).epsilon(0.001));
    // A look that is close to the last one costs little, and looks at odd places are allowed.
    CHECK(boundary_of({0.1, 0.37, 0.98, 0.99, 1}) > 1.96);
    CHECK(boundary_of({0.1, 0.37, 0.98, 0.99, 1}) < 2.2);
    CHECK(SpendingLooks({1}).nominal(0.05) == 0.05);
    CHECK(SpendingLooks({1}).sequential_p(0.03) == 0.03);
}

TEST_CASE("a sequential p is at most a level exactly if the look rejects at it") {
    for (const std::vector<double> &fractions :
         {std::vector<double>{0.3}, {0.25, 0.5, 0.75}, {0.25, 0.5, 0.75, 1}, {0.05, 0.06}}) {
        const SpendingLooks looks(fractions);
        for (const double level : {0.05, 0.01, 0.05 / 7}) {
            const double nominal = looks.nominal(level);
            CHECK(nominal <= level);
            if (nominal < 1e-200) continue;
            CHECK(looks.sequential_p(nominal * 0.999) <= level);
            CHECK(looks.sequential_p(nominal * 1.001) > level);
        }
        CHECK(looks.sequential_p(1) == 1);
        CHECK(looks.sequential_p(0) <= 1e-8);
        double before = 0;
        for (double p = 1e-12; p < 1; p *= 3) {
            CHECK(looks.sequential_p(p) >= before);
            before = looks.sequential_p(p);
        }
    }
    for (const std::vector<double> &wrong :
         {std::vector<double>{}, {0.0}, {0.5, 0.5}, {0.5, 0.4}, {1.1}})
        CHECK(contains(error_text([&] { SpendingLooks one(wrong); }, ErrorKind::runtime),
                       "expected"));
}

TEST_CASE("under a rule early looks have verdicts, and later looks know them") {
    const TempFolder folder;
    const fs::path out = folder / "out";
    const ab::Header header = header_with_rule(80);
    // p is 0.0156 at a quarter: not enough there, but enough for a single test.
    const std::string first = report(out, header, 20, 6);
    CHECK(contains(first, "not distinguishable"));
    CHECK(contains(first, "early look: 20 of 80 items"));
    CHECK(count_looks(out) == 1);
    ab::write_report(out); // the same data again is the same look
    CHECK(count_looks(out) == 1);
    const std::string second = report(out, header, 40, 20); // p below 0.0001
    CHECK(contains(second, "worse"));
    CHECK(contains(second, "early look: 40 of 80 items"));
    CHECK(count_looks(out) == 2);
    report(out, header, 80, 6);
    CHECK(count_looks(out) == 3);
    // With earlier looks the last one needs a smaller p.
    ab::Names names;
    const ab::Table table = ab::load_table(out, names);
    ab::LookBook none("x"), book = ab::LookBook::read(out, header.plan->hash);
    const auto fresh = ab::summarize(table, names, &none),
               known = ab::summarize(table, names, &book);
    const ab::Contrast *alone = find_contrast(fresh.contrasts, "window", "full"),
                       *after = find_contrast(known.contrasts, "window", "full");
    REQUIRE(alone->p);
    REQUIRE(after->p);
    CHECK(*after->p > *alone->p);
    CHECK(after->interval->low <= alone->interval->low);
    CHECK(after->label.empty());
    // Fewer items than at an earlier look have no verdict, and are no look.
    CHECK(contains(report(out, header, 30, 20), "early look: 30 of 80 items"));
    CHECK(count_looks(out) == 3);
}

TEST_CASE("looks that may not count have no verdict") {
    const TempFolder folder;
    const ab::Header header = header_with_rule(400);
    report(folder / "a", header, 100, 50);
    CHECK(count_looks(folder / "a") == 1);
    const std::string close = report(folder / "a", header, 101, 50); // less than 1% more
    CHECK(contains(close, "early look: 101 of 400 items"));
    CHECK_FALSE(contains(close, "worse"));
    CHECK(count_looks(folder / "a") == 1);
    ab::Header partial = header;
    partial.missing_shards = 1;
    CHECK_FALSE(contains(report(folder / "b", partial, 100, 50), "worse"));
    CHECK(count_looks(folder / "b") == 0);
    // Without a book of looks, an early look has no verdict.
    const auto loaded = load_ab(folder, header, first_documents(100, 50));
    CHECK(find_contrast(loaded->summary.contrasts, "window", "full")->verdict ==
          ab::Verdict::exploratory);
    folder.write("a/looks.jsonl", "{\"plan\": 3}\n");
    CHECK(contains(error_text([&] { ab::write_report(folder / "a"); }), "looks.jsonl"));
}

TEST_CASE("a merge carries the looks of its shards") {
    const TempFolder folder;
    report(folder / "a", header_with_rule(80), 20, 6);
    ab::carry_looks({folder / "a", folder / "a/results.jsonl", folder / "nothing"}, folder / "a");
    CHECK(count_looks(folder / "a") == 1);
    fs::create_directories(folder / "b");
    ab::carry_looks({folder / "a/results.jsonl"}, folder / "b");
    ab::carry_looks({folder / "a"}, folder / "b");
    CHECK(count_looks(folder / "b") == 1);
}

TEST_CASE("planned tests that are not measured yet count in the adjustment") {
    ab::Header header = header_with_rule(20);
    header.statistics.looks = ab::Looks::none;
    header.plan->entries[5].value = "none";
    const auto contrast_of = [&](const char *tests) {
        const TempFolder folder;
        ab::Header h = header;
        if (tests != nullptr) h.plan->entries.push_back({std::string(ab::plan_tests), tests});
        h.plan->hash = ab::plan_hash(h.plan->entries);
        const auto loaded = load_ab(folder, h, first_documents(20, 6));
        return *find_contrast(loaded->summary.contrasts, "window", "full");
    };
    const ab::Contrast one = contrast_of(nullptr), of_five = contrast_of("5");
    CHECK(one.verdict == ab::Verdict::worse);
    CHECK(of_five.family_size == 5);
    CHECK(of_five.p_adjusted == Approx(5 * one.p_adjusted));
    CHECK(of_five.interval->low < one.interval->low);
    CHECK(of_five.verdict == ab::Verdict::not_distinguishable);
}

TEST_CASE("a line of looks that a crash cut off is dropped, and the next look starts a line") {
    const TempFolder folder;
    const fs::path out = folder / "out";
    const ab::Header header = header_with_rule(80);
    report(out, header, 20, 6);
    {
        std::ofstream file(out / ab::LookBook::file_name, std::ios::app);
        file << "{\"look\": 2, \"plan\": \"";
    }
    report(out, header, 40, 6);
    std::ifstream in(out / ab::LookBook::file_name);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    REQUIRE(lines.size() == 2);
    CHECK(lines[1].starts_with("{\"look\":2"));
}

TEST_CASE("the looks of merged results are carried back to the folders of the shards") {
    const TempFolder folder;
    const fs::path shard = folder / "shard", merged = folder / "merged";
    const ab::Header header = header_with_rule(80);
    fs::create_directories(shard);
    report(merged, header, 20, 6);
    ab::carry_looks({merged}, shard);
    ab::carry_looks({merged}, shard); // each line once
    CHECK(count_looks(shard) == 1);
}
