// Tests of keel ab compare, merge and report that run the program.
#include "apps/keel_process.hpp"
#include "eval/ab/results.hpp"

#include <fmt/format.h>

using namespace keel;
using test::contains;
using test::made_header;
using test::made_item;
using test::ProcessResult;
using test::write_ab;

namespace {

ProcessResult keel_ab(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "ab");
    return test::run_keel(std::move(arguments));
}

std::vector<ab::Record> hits(int of_window) {
    std::vector<ab::Record> records;
    for (int i = 0; i < 40; ++i) {
        records.emplace_back(made_item("full", "full", fmt::format("i{}", i), 1));
        records.emplace_back(
            made_item("window", "tokens:128", fmt::format("i{}", i), i < of_window ? 1 : 0));
    }
    return records;
}

} // namespace

TEST_CASE("keel ab compare has exit code 0 for no loss, 3 for a loss, 2 for a wrong request") {
    const test::TempFolder folder;
    const std::string good = write_ab(folder / "good", made_header(), hits(30)).string();
    const std::string bad = write_ab(folder / "bad", made_header(), hits(10)).string();
    const std::string near = write_ab(folder / "near", made_header(), hits(29)).string();
    const ProcessResult same = keel_ab({"compare", good, good});
    INFO(same.out << same.err);
    CHECK(same.code == 0);
    CHECK(contains(same.out, "passed"));
    const ProcessResult worse = keel_ab({"compare", good, bad});
    CHECK(worse.code == 3);
    CHECK(contains(
        worse.out,
        "worse: of 2 contrasts that decide, 1 are worse by more than the margin (hit 1 point)"));
    CHECK(keel_ab({"compare", bad, good}).code == 0);
    CHECK(keel_ab({"compare", good, bad, "--margin", "hit=60 points"}).code == 0);
    CHECK(keel_ab({"compare", good, bad, "--arm", "full"}).code == 0);
    CHECK(keel_ab({"compare", good, near}).code == 0);
    CHECK(keel_ab({"compare", good, near, "--strict"}).code == 3);
    const ProcessResult json = keel_ab({"compare", good, bad, "--json"});
    CHECK(json.code == 3);
    CHECK(nlohmann::json::parse(json.out).at("worse") == 1);
    for (const std::vector<std::string> &wrong : {std::vector<std::string>{"compare", good},
                                                  {"compare", good, folder.path().string()},
                                                  {"compare", good, bad, "--task", "nothing"},
                                                  {"compare", good, bad, "--margin", "hit=0.1"}}) {
        const ProcessResult result = keel_ab(wrong);
        INFO(result.err);
        CHECK(result.code == 2);
        CHECK(contains(result.err, "keel: error: "));
    }
}

TEST_CASE("keel ab merge and report work with folders of results") {
    const test::TempFolder folder;
    for (uint32_t i = 1; i <= 2; ++i) {
        ab::Header header = made_header();
        header.shard = i;
        header.shards = 3;
        std::vector<ab::Record> records;
        for (int k = 0; k < 20; ++k) {
            const std::string name = fmt::format("{}/{}", i, k);
            records.emplace_back(made_item("full", "full", name, 1));
            records.emplace_back(made_item("window", "tokens:128", name, 0));
        }
        write_ab(folder / (fmt::format("s{}", i)), header, records);
    }
    const std::string out = (folder / "out").string();
    const ProcessResult merged =
        keel_ab({"merge", out, (folder / "s1").string(), (folder / "s2").string()});
    INFO(merged.out << merged.err);
    CHECK(merged.code == 0);
    CHECK(contains(merged.err, "81 records of 2 shards merged"));
    CHECK(contains(merged.out, "of 3 shards one is missing: 3"));
    CHECK(contains(merged.out, "worse"));
    CHECK(std::filesystem::exists(folder / "out" / "report.html"));
    std::filesystem::remove(folder / "out" / "report.html");
    const ProcessResult report = keel_ab({"report", out});
    CHECK(report.code == 0);
    CHECK(report.out == merged.out);
    CHECK(std::filesystem::exists(folder / "out" / "report.html"));
    CHECK(keel_ab({"merge", out, (folder / "s1").string()}).code == 2);
    CHECK(keel_ab({"report", (folder / "nowhere").string()}).code == 2);
}
