// Power and needed documents from a pilot.
#include "eval/ab/verdicts/power.hpp"
#include "eval/stats/power.hpp"
#include "results.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace keel;
using namespace keel::test;

namespace {

// `n` documents: `lost` and `won` of them differ.
std::vector<ab::Record> pilot_hits(int n, int lost, int won) {
    std::vector<ab::Record> all;
    for (int i = 0; i < n; ++i) {
        const std::string name = fmt::format("{}", i);
        all.emplace_back(made_item("full", "full", name, i < won ? 0 : 1));
        all.emplace_back(
            made_item("window", "tokens:128", name, i >= won && i < won + lost ? 0 : 1));
    }
    return all;
}

ab::Header pilot_header() {
    ab::Header h = made_header();
    h.arms = {{"full", ""}, {"window", ""}};
    h.statistics.primary = "passkey/hit";
    h.statistics.margins = {{"hit", 0.05}};
    return h;
}

} // namespace

TEST_CASE("documents that are needed fit the textbook") {
    // Connor (1987): 20% differ, a difference of 10 points, 5% two-sided, 80%:
    // (1.96 sqrt(0.2) + 0.8416 sqrt(0.19))^2 / 0.01 = 154.6.
    const auto needed =
        documents_for_power(0.8, [](double n) { return power_of_score(0.1, 0.2, n, 0.05); });
    CHECK(needed == 155);
    // Student's t, an effect of half a standard deviation, paired: 34 documents (G*Power).
    const auto means =
        documents_for_power(0.8, [](double n) { return power_of_t(0.5, 1, n, n - 1, 0.05); });
    REQUIRE(means);
    CHECK(*means >= 33);
    CHECK(*means <= 35);
    CHECK(power_of_t(0.5, 1, 1, 0, 0.05) == 0);
    CHECK_FALSE(documents_for_power(0.8, [](double) { return 0.1; }));
    // Non-inferiority: about as many as for a difference, if few documents differ.
    const auto shown = documents_for_power(
        0.8, [](double n) { return power_of_non_inferiority(0.05, 0.2, 1, n, 0.05); });
    REQUIRE(shown);
    CHECK(*shown > 550);
    CHECK(*shown < 700);
}

TEST_CASE("a pilot gives the power of its planned contrasts") {
    const TempFolder folder;
    const auto pilot = load_ab(folder, pilot_header(), pilot_hits(200, 20, 20));
    const ab::PowerTable table = ab::power_of_pilot(pilot->summary, {});
    REQUIRE(table.rows.size() == 1);
    CHECK(table.level == Approx(0.05));
    const ab::PowerRow &row = table.rows[0];
    CHECK(row.documents == 200);
    // One of 201 documents more differs.
    REQUIRE(row.find_needed);
    CHECK(*row.find_needed == *documents_for_power(0.8, [](double n) {
        return power_of_score(0.05, 41.0 / 201, n, 0.05);
    }));
    CHECK(row.find_power == Approx(power_of_score(0.05, 41.0 / 201, 200, 0.05)));
    CHECK(table.warnings().size() == 1);
    CHECK(contains(ab::power_text(table),
                   fmt::format("documents that are needed: {}", *row.find_needed)));
    ab::PowerOptions wide;
    wide.margins = {{"hit", 0.2}};
    CHECK(ab::power_of_pilot(pilot->summary, wide).warnings().empty());
    const auto json = ab::power_json(table);
    CHECK(json.at("contrasts").at(0).at("find_documents") == *row.find_needed);
    wide.margins = {{"nll", 0.2}};
    CHECK(contains(error_text([&] { ab::power_of_pilot(pilot->summary, wide); }),
                   "no planned contrast has this metric"));
}

TEST_CASE("an experiment with fewer documents than a verdict needs has no power") {
    const TempFolder folder;
    ab::Header h = pilot_header();
    h.statistics.primary = "continuation/nll";
    h.statistics.margins = {{"nll", 0.5}};
    std::vector<ab::Record> all;
    for (int i = 0; i < 49; ++i) {
        const std::string name = fmt::format("{}", i);
        all.emplace_back(made_item("full", "full", name, 3, "nll"));
        all.emplace_back(made_item("window", "tokens:128", name, 3 + 0.01 * (i % 3), "nll"));
    }
    const auto pilot = load_ab(folder, h, all);
    const ab::PowerRow row = ab::power_of_pilot(pilot->summary, {}).rows.at(0);
    CHECK(row.unknown.empty());
    CHECK(row.find_power == 0);
    CHECK(row.non_inferior_power == 0);
    CHECK(row.find_needed == 50);
    CHECK(row.non_inferior_needed == 50);
}

TEST_CASE("what a pilot cannot say is named") {
    const TempFolder folder;
    // No document differs: one more is assumed to.
    const auto equal = load_ab(folder, pilot_header(), pilot_hits(100, 0, 0));
    const ab::PowerTable table = ab::power_of_pilot(equal->summary, {});
    CHECK(table.rows[0].unknown.empty());
    CHECK(table.rows[0].find_needed.value_or(0) > 50);
    const auto small = load_ab(folder, pilot_header(), pilot_hits(1, 0, 0));
    CHECK(contains(ab::power_of_pilot(small->summary, {}).rows[0].unknown, "fewer than two"));
    const auto few = load_ab(folder, pilot_header(), pilot_hits(12, 2, 0));
    const auto warnings = ab::power_of_pilot(few->summary, {}).warnings();
    REQUIRE(warnings.size() == 2);
    CHECK(contains(warnings[1], "the pilot has only 12 documents"));
    // Means whose differences are all equal have no variance.
    ab::Header h = pilot_header();
    h.statistics.primary = "continuation/nll";
    std::vector<ab::Record> all;
    for (int i = 0; i < 30; ++i) {
        all.emplace_back(made_item("full", "full", fmt::format("{}", i), 3, "nll"));
        all.emplace_back(made_item("window", "tokens:128", fmt::format("{}", i), 3.5, "nll"));
    }
    const auto flat = load_ab(folder, h, all);
    CHECK(contains(ab::power_of_pilot(flat->summary, {}).rows[0].unknown, "are equal"));
}
