#include "eval/ab/records/merge.hpp"
#include "eval/ab/report/report.hpp"
#include "eval/ab/verdicts/compare.hpp"
#include "results.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/page_checks.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace keel;
using test::contains;
using test::data_of;
using test::made_header;
using test::made_item;
using test::write_ab;

namespace {

std::string report_text(const std::filesystem::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<ab::Record> small_experiment(double window_hits = 0.5) {
    std::vector<ab::Record> records;
    for (int i = 0; i < 40; ++i) {
        const std::string name = fmt::format("i{}", i);
        ab::Item item = made_item("full", "full", name, 1);
        item.depth = (i % 4) / 3.0;
        item.length = 512 + i % 2;
        records.emplace_back(item);
        item = made_item("window", "tokens:128", name, i < 40 * window_hits ? 1 : 0);
        item.depth = (i % 4) / 3.0;
        item.length = 512 + i % 2;
        records.emplace_back(item);
    }
    return records;
}

void add_pictures(std::vector<ab::Record> &records) {
    ab::KeepMap map;
    static_cast<ab::Place &>(map) = made_item("window", "tokens:128", "i0", 0);
    map.layers = 2;
    map.kv_heads = 3;
    map.bins.assign(2 * 3 * 64, 0.25F);
    records.emplace_back(map);
    map.bins.assign(2 * 3 * 64, 0.75F);
    records.emplace_back(map);
    ab::Timeline line;
    static_cast<ab::Place &>(line) = map;
    for (uint64_t i = 0; i < 5000; ++i)
        line.points.push_back({i, 100 + i % 50, i % 50 == 0 ? 50U : 0U});
    records.emplace_back(line);
    ab::Curve curve;
    static_cast<ab::Place &>(curve) = map;
    curve.metric = "nll";
    curve.values.assign(200, 1.5);
    records.emplace_back(curve);
    curve.values.assign(100, 2.5);
    records.emplace_back(curve);
}

} // namespace

TEST_CASE("an experiment's report is one page that loads nothing") {
    const test::TempFolder folder;
    std::vector<ab::Record> records = small_experiment();
    add_pictures(records);
    const auto dir = write_ab(folder / "out", made_header(), records);
    const std::string text = ab::write_report(dir);
    CHECK(contains(text, "worse"));
    CHECK(contains(text, (dir / "report.html").string()));
    const std::string html = report_text(dir / "report.html");
    test::check_offline(html);

    const auto data = data_of(html);
    REQUIRE(data.at("maps").size() == 1);
    CHECK(data.at("maps")[0][3] == 2); // number of items
    const std::string bins = data.at("maps")[0][4];
    CHECK(bins == std::string(2 * 3 * 64, 'W')); // half of 63 steps
    REQUIRE(data.at("timelines").size() == 1);
    CHECK(data.at("timelines")[0][2].size() <= 301);
    uint64_t evicted = 0;
    for (const auto &point : data.at("timelines")[0][2]) evicted += point[2].get<uint64_t>();
    CHECK(evicted == 100 * 50); // the list is thinned out, but no eviction is lost
    REQUIRE(data.at("curves").size() == 1);
    CHECK(data.at("curves")[0][2].size() <= 64);
    CHECK(data.at("curves")[0][2][0][1] == 2.0);
    CHECK(data.at("curves")[0][2].back()[1] == 1.5);
    REQUIRE(data.at("heat").size() == 1);
    // the lengths 512 and 513 are shown as one
    CHECK(data.at("heat")[0].at("lengths").size() == 1);
    CHECK(data.at("heat")[0].at("depths").size() == 4);
    for (const auto &row : data.at("contrasts").at("rows"))
        CHECK(row.size() == data.at("contrasts").at("columns").size());
    for (const auto &row : data.at("cells").at("rows"))
        CHECK(row.size() == data.at("cells").at("columns").size());

    const auto summary = nlohmann::json::parse(report_text(dir / "summary.json"));
    CHECK(summary.at("format") == "keel-ab-summary/1");
    CHECK(summary.at("contrasts")[0].at("verdict") == "worse");
    CHECK(summary.at("contrasts")[0].at("items") == 40);
    CHECK(summary.at("header").at("config_hash") == made_header().config_hash);
    // If the report is written again, it is the same.
    ab::write_report(dir);
    CHECK(report_text(dir / "report.html") == html);
}

TEST_CASE("markup in names stays text in every output") {
    const test::TempFolder folder;
    const std::string evil = "</script><img src=x onerror=alert(1)>\"'&\x1b[2J";
    ab::Header header = made_header();
    header.title = evil;
    header.machine = evil;
    header.facts = {{evil, evil}};
    header.arms.push_back({evil, evil});
    std::vector<ab::Record> records = small_experiment();
    for (int i = 0; i < 12; ++i) {
        ab::Item item = made_item(evil, evil, fmt::format("i{}", i), 1);
        item.protocol = evil;
        item.task = evil;
        records.emplace_back(item);
    }
    records.emplace_back(ab::Warning{evil, evil, evil, evil, evil});
    const auto dir = write_ab(folder / "out", header, records);
    const std::string text = ab::write_report(dir);
    CHECK_FALSE(contains(text, "\x1b"));
    const std::string html = report_text(dir / "report.html");
    CHECK_FALSE(contains(html, "<img"));
    CHECK_FALSE(contains(html, "\x1b"));
    CHECK(data_of(html).at("header").at("machine") == evil);
    CHECK(data_of(html).at("warnings").at(0).at(4) == evil);
}

TEST_CASE("a page that would be too large leaves pictures out and reports it") {
    const test::TempFolder folder;
    std::vector<ab::Record> records = small_experiment();
    add_pictures(records);
    const auto dir = write_ab(folder / "out", made_header(), records);
    ab::Names names;
    const ab::Table table = ab::load_table(dir, names);
    const ab::Summary summary = ab::summarize(table, names);
    const auto data = data_of(ab::report_html(table, names, summary, 1));
    CHECK(data.at("maps").empty());
    CHECK(data.at("timelines").empty());
    CHECK(data.at("heat").empty());
    CHECK(contains(data.at("notes").dump(), "keep maps are left out"));
    CHECK_FALSE(data_of(ab::report_html(table, names, summary)).at("maps").empty());
}

TEST_CASE("twenty arms at six budgets with 200 items make a page below five megabytes") {
    const test::TempFolder folder;
    ab::Header header = made_header();
    header.statistics.resamples = 100;
    header.arms = {{"full", ""}};
    std::vector<ab::Record> records;
    for (int i = 0; i < 200; ++i)
        records.emplace_back(made_item("full", "full", fmt::format("i{}", i), 1));
    for (int arm = 0; arm < 20; ++arm)
        for (int budget = 0; budget < 6; ++budget) {
            ab::Item item =
                made_item(fmt::format("arm{}", arm), fmt::format("tokens:{}", 32 << budget), "", 0);
            for (int i = 0; i < 200; ++i) {
                item.item = fmt::format("i{}", i);
                item.value = (i * 7 + arm) % 20 < budget * 3 ? 1 : 0;
                item.depth = (i % 10) / 9.0;
                item.kv_bytes = static_cast<uint64_t>(1000) << budget;
                records.emplace_back(item);
            }
            ab::KeepMap map;
            static_cast<ab::Place &>(map) = item;
            map.layers = 32;
            map.kv_heads = 8;
            map.bins.assign(size_t{32} * 8 * 64, 0.5F);
            records.emplace_back(map);
            ab::Timeline line;
            static_cast<ab::Place &>(line) = item;
            for (uint64_t i = 0; i < 1000; ++i) line.points.push_back({i, i, 1});
            records.emplace_back(line);
        }
    const auto dir = write_ab(folder / "out", header, records);
    const std::string text = ab::write_report(dir);
    CHECK(std::filesystem::file_size(dir / "report.html") < 5'000'000);
    CHECK(std::count(text.begin(), text.end(), '\n') < 120);
    const auto data = data_of(report_text(dir / "report.html"));
    CHECK(contains(data.at("notes").dump(), "keep maps are left out"));
    CHECK(data.at("maps").size() > 10);
}

TEST_CASE("folders without results and results without items are reported") {
    const test::TempFolder folder;
    CHECK(contains(test::error_text([&] { ab::write_report(folder.path()); }), "no results.jsonl"));
    CHECK(
        contains(test::error_text([&] { ab::write_report(folder / "nowhere"); }), "found nothing"));
    const auto dir = write_ab(folder / "empty", made_header(), {});
    CHECK(contains(test::error_text([&] { ab::write_report(dir); }), "have no items"));
}

TEST_CASE("shards are merged in order, equal records count once, and missing shards are named") {
    const test::TempFolder folder;
    const auto shard = [&](uint32_t index, const std::vector<ab::Record> &records) {
        ab::Header header = made_header();
        header.shard = index;
        header.shards = 3;
        header.machine = fmt::format("machine {}", index);
        return write_ab(folder / (fmt::format("s{}", index)), header, records);
    };
    const ab::Record shared = made_item("full", "full", "i0", 1);
    const auto one = shard(1, {shared, made_item("full", "full", "i1", 1)});
    const auto two = shard(2, {shared, made_item("full", "full", "i2", 0)});
    const ab::MergeResult part = ab::merge_shards({two, one / "results.jsonl"}, folder / "part");
    CHECK(part.missing == std::vector<uint32_t>{3});
    CHECK(part.duplicates == 1);
    ab::Names names;
    const ab::Table table = ab::load_table(folder / "part", names);
    CHECK(table.header.shards == 1);
    CHECK(table.header.machine == "machine 1; machine 2");
    CHECK(contains(table.header.facts.back().second, "missing: 3"));
    REQUIRE(table.warnings.size() == 2);
    CHECK(contains(table.warnings[0].text, "of 3 shards one is missing: 3"));
    CHECK(contains(table.warnings[1].text, "different machines"));
    REQUIRE(table.cells.size() == 1);
    CHECK(table.cells[0].points.size() == 3);

    const auto three = shard(3, {made_item("full", "full", "i3", 0)});
    ab::merge_shards({three, two, one}, folder / "a");
    ab::merge_shards({one, two, three}, folder / "b");
    CHECK(report_text(folder / "a" / "results.jsonl") ==
          report_text(folder / "b" / "results.jsonl"));
    CHECK(ab::load_table(folder / "a", names).warnings.size() == 1); // different machines

    const auto refused = [&](const std::vector<std::filesystem::path> &shards,
                             const char *part_of_text) {
        CHECK(contains(test::error_text([&] { ab::merge_shards(shards, folder / "c"); }),
                       part_of_text));
        CHECK_FALSE(std::filesystem::exists(folder / "c" / "results.jsonl"));
        CHECK_FALSE(std::filesystem::exists(folder / "c" / "results.jsonl.part"));
    };
    refused({one, one}, "are both shard 1 of 3");
    CHECK(contains(test::error_text([&] {
                       ab::merge_shards({one, two}, folder / "a");
                   }),
                   "exists already"));
    ab::Header other = made_header();
    other.shards = 3;
    other.shard = 3;
    other.config_hash = "other";
    refused({one, write_ab(folder / "x", other, {})}, "belong to different experiments");
    other = made_header();
    other.shards = 4;
    other.shard = 3;
    refused({one, write_ab(folder / "y", other, {})}, "is one of 3 shards");
    other.shards = 3;
    other.items = 2;
    refused({one, write_ab(folder / "fewer", other, {})}, "with --items 2");
    other.items = 0;
    refused({one, write_ab(folder / "z", other, {made_item("full", "full", "i0", 0)})},
            "z/results.jsonl:2: two shards have different values");
    CHECK(contains(test::error_text([&] { ab::merge_shards({}, folder / "c"); }, ErrorKind::usage),
                   "expected the folders of the shards"));
    // The file of one shard ends with half a line.
    std::ofstream(three / "results.jsonl", std::ios::app) << "{\"kind\":";
    ab::merge_shards({one, two, three}, folder / "d");
    CHECK(contains(ab::load_table(folder / "d", names).warnings.back().text,
                   "ends with an incomplete line"));
}

TEST_CASE("comparing two experiments gives equal, worse, or too small for a verdict") {
    const test::TempFolder folder;
    const auto first = write_ab(folder / "first", made_header(), small_experiment());
    const auto same = write_ab(folder / "same", made_header(), small_experiment());
    const auto worse = write_ab(folder / "worse", made_header(), small_experiment(0.2));
    const auto near = write_ab(folder / "near", made_header(), small_experiment(0.475));
    ab::CompareOptions options;
    const ab::Comparison equal = ab::compare_results(first, same, options);
    CHECK(equal.passed());
    CHECK(equal.same_config);
    CHECK(equal.decided == 2);
    CHECK(contains(ab::text_of_comparison(equal), "2 of 2 contrasts are equal in every item"));
    options.strict = true;
    CHECK(ab::compare_results(first, same, options).passed());
    options.strict = false;

    const ab::Comparison lost = ab::compare_results(first, worse, options);
    CHECK_FALSE(lost.passed());
    CHECK(lost.worse == 1);
    CHECK(contains(ab::text_of_comparison(lost), "worse: of 2 contrasts that decide, 1 are worse"));
    CHECK(
        contains(ab::text_of_comparison(lost), "2 contrasts decide: their intervals of 95% hold"));
    CHECK(ab::comparison_json(lost).at("passed") == false);
    CHECK(ab::compare_results(worse, first, options).passed());
    options.margins["hit"] = 0.5;
    CHECK(ab::compare_results(first, worse, options).passed());
    options.margins = {{"hits", 0.5}};
    CHECK(contains(test::error_text([&] { ab::compare_results(first, worse, options); }),
                   "--margin hits: expected a name from the first experiment"));
    options.margins.clear();
    options.arms = {"full"};
    CHECK(ab::compare_results(first, worse, options).passed());
    options.arms = {"nobody"};
    CHECK(contains(test::error_text([&] { ab::compare_results(first, worse, options); }),
                   "--arm nobody"));
    options.arms = {"ful"};
    CHECK(contains(test::error_text([&] { ab::compare_results(first, worse, options); }),
                   "did you mean 'full'?"));
    options.arms.clear();

    // One of forty items is lost: neither a loss nor equality is shown.
    const ab::Comparison unsure = ab::compare_results(first, near, options);
    CHECK(unsure.passed());
    CHECK(unsure.unproven == 2); // the forty equal hits of the other arm do not prove more either
    options.strict = true;
    CHECK_FALSE(ab::compare_results(first, near, options).passed());
    options.strict = false;

    const auto other = write_ab(folder / "other", made_header(), {made_item("x", "full", "i", 1)});
    CHECK(contains(test::error_text([&] { ab::compare_results(first, other, options); }),
                   "nothing in common") == false);
    CHECK(contains(test::error_text([&] { ab::compare_results(first, other, options); }),
                   "in common"));
    const auto half = write_ab(folder / "half", made_header(), {small_experiment()[0]});
    const ab::Comparison lacking = ab::compare_results(first, half, options);
    CHECK(lacking.lost == 1);
    CHECK(contains(ab::text_of_comparison(lacking),
                   "1 combinations of arm, budget, task and metric of the first experiment are "
                   "missing in the second"));
}
