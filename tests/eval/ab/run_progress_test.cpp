#include "eval/ab/run/run_progress.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <tuple>
#include <vector>

using namespace keel;

namespace {

struct Reports {
    ab::RunOptions options;
    std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> seen; // done, total, found

    Reports() {
        options.host = std::make_shared<HostServices>(1);
        options.steps = [this](uint64_t done, uint64_t total, uint64_t found) {
            seen.emplace_back(done, total, found);
        };
    }
};

} // namespace

TEST_CASE("progress counts documents times runs, also of documents that run in parts") {
    Reports reports;
    ab::RunProgress progress(reports.options);
    progress.expect(12, 3); // four documents, three runs
    progress.begin(2);
    for (size_t part = 0; part < 2; ++part) {
        progress.begin_part(part, 2);
        for (uint64_t run = 1; run <= 3; ++run) progress.step(run);
    }
    progress.end();
    progress.begin(2);
    progress.step(3);
    const decltype(reports.seen) expected = {{1, 12, 0}, {2, 12, 0}, {3, 12, 0}, {4, 12, 0},
                                             {5, 12, 0}, {6, 12, 0}, {12, 12, 0}};
    CHECK(reports.seen == expected);
}

TEST_CASE("progress says how much was found on disk, and never more than is done") {
    Reports reports;
    ab::RunProgress progress(reports.options);
    progress.expect(4, 2);
    progress.begin(1);
    progress.found();
    progress.found();
    progress.step(1);
    progress.end();
    progress.begin(1);
    progress.step(2);
    const decltype(reports.seen) expected = {{1, 4, 1}, {4, 4, 2}};
    CHECK(reports.seen == expected);
}

TEST_CASE("progress without expected work reports nothing, and stops after a cancel") {
    Reports reports;
    const ab::RunProgress progress(reports.options);
    progress.step(1);
    CHECK(reports.seen.empty());
    reports.options.host->request_cancel();
    CHECK(test::error_text([&] { progress.step(2); }, ErrorKind::runtime) == "cancelled");
}
