// An experiment must reproduce known results about policies. The experiment of
// docs/benchmarks/2026-11-policy-quality.md must run.
#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

using namespace keel::test;
using nlohmann::json;

namespace {

ProcessResult run_ab(const std::string &file, const std::string &out,
                     std::vector<std::string> more) {
    std::vector<std::string> arguments = {std::string(KEEL_BINARY_DIR) + "/bin/keel",
                                          "ab",
                                          std::string(KEEL_SOURCE_DIR) + file,
                                          "-o",
                                          out,
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProcessOptions options;
    options.timeout = std::chrono::seconds(1500);
    return run_process(arguments, options);
}

} // namespace

TEST_CASE("an experiment shows that a window loses what it evicts, and that snapkv finds it") {
    const TempFolder folder;
    const std::string out = folder / "passkey";
    const ProcessResult r = run_ab("/tests/apps/ab_passkey.yaml", out, {});
    INFO(r.err);
    REQUIRE(r.code == 0);
    const json summary = json::parse(r.out);
    std::map<std::string, double> mean;
    for (const json &cell : summary.at("cells")) {
        mean[cell.at("arm")] = cell.at("mean");
        if (cell.at("arm") == "full" || cell.at("arm") == "full#again") continue;
        CHECK(cell.at("evictions") == 1);
        CHECK(cell.at("eviction_us") > 0);
        CHECK(cell.at("kv_bytes") < 0.6 * cell.at("full_kv_bytes").get<double>());
    }
    CHECK(mean.at("full") >= 0.9);
    CHECK(mean.at("full#again") == mean.at("full"));
    CHECK(mean.at("snapkv") >= 0.9 * mean.at("full"));
    const auto contrast = [&](const std::string &arm) {
        for (const json &c : summary.at("contrasts"))
            if (c.at("kind") == "reference" && c.at("a") == arm) return c;
        throw std::runtime_error("no contrast of " + arm);
    };
    const json random = contrast("random"), window = contrast("window"),
               snapkv = contrast("snapkv");
    CHECK(random.at("verdict") == "worse");
    CHECK(random.at("interval")[1] < 0);
    CHECK(random.at("beyond_margin") == true);
    CHECK(window.at("verdict") == "worse");
    CHECK(window.at("interval")[1] < 0);
    CHECK(snapkv.at("verdict") != "worse");
    CHECK(snapkv.at("within_margin") ==
          false); // twenty items cannot exclude a loss of one in a hundred

    std::ifstream in(std::filesystem::path(out) / "results.jsonl");
    int outside = 0;
    for (std::string line; std::getline(in, line);) {
        const json item = json::parse(line);
        if (item.value("kind", "") != "item" || item.at("arm") != "window") continue;
        // The window holds the last quarter of the prompt, so facts before it are lost.
        if (item.at("depth") > 0.6) continue;
        ++outside;
        INFO(line);
        CHECK(item.at("value") == 0);
    }
    CHECK(outside == 12);
}

TEST_CASE("the experiment of all policies runs") {
    const TempFolder folder;
    const std::string out = folder / "policies";
    const ProcessResult r = run_ab("/configs/ab/policies.yaml", out, {"--items", "2"});
    INFO(r.err);
    REQUIRE(r.code == 0);
    const json summary = json::parse(r.out);
    CHECK(summary.dump().find("kvzip") != std::string::npos);
    CHECK(std::filesystem::file_size(std::filesystem::path(out) / "report.html") > 10'000);
    for (const json &c : summary.at("contrasts")) {
        const bool planned = c.at("planned");
        CHECK(c.at("family") == (planned ? "planned" : "exploratory"));
        if (c.at("a").get<std::string>().ends_with("_sweep")) CHECK_FALSE(planned);
        if (planned) CHECK(c.at("metric") == "hit");
    }
}
