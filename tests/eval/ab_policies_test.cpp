// The experiment behind docs/policies.md, with two documents of each task.
#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <nlohmann/json.hpp>

using namespace keel::test;

TEST_CASE("the experiment of all policies runs") {
    const TempFolder folder;
    const std::string out = folder / "policies";
    ProcessOptions options;
    options.timeout = std::chrono::seconds(1500);
    const ProcessResult r = run_process({std::string(KEEL_BINARY_DIR) + "/bin/keel", "ab",
                                         std::string(KEEL_SOURCE_DIR) + "/configs/ab/policies.yaml",
                                         "--items", "2", "-o", out, "--json"},
                                        options);
    INFO(r.err);
    REQUIRE(r.code == 0);
    const auto summary = nlohmann::json::parse(r.out);
    CHECK(summary.dump().find("kvzip") != std::string::npos);
    CHECK(std::filesystem::file_size(std::filesystem::path(out) / "report.html") > 10'000);
}
