#include "kv/evict/eviction_log.hpp"
#include "kv/evict/keep_lists.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <limits>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

std::vector<int32_t> best(const std::vector<float> &scores, const std::vector<uint8_t> &mask,
                          int64_t budget) {
    std::vector<int32_t> order, keep;
    keep_best({std::ssize(scores), budget, mask.data()}, scores.data(), "policy p, layer 3, head 1",
              order, keep);
    return keep;
}

std::vector<int32_t> listed(const std::vector<int32_t> &list, const std::vector<uint8_t> &mask,
                            int64_t budget) {
    std::vector<int32_t> keep;
    keep_listed({std::ssize(mask), budget, mask.data()}, list, "policy p, layer 3, head 1", keep);
    return keep;
}

using Slots = std::vector<int32_t>;

} // namespace

TEST_CASE("The slots with the best scores stay within the budget, protected slots first") {
    const std::vector<uint8_t> free(6, 0), ends = {1, 0, 0, 0, 0, 1};
    CHECK(best({5, 1, 4, 2, 3, 0}, free, 3) == Slots{0, 2, 4});
    CHECK(best({5, 1, 4, 2, 3, 0}, ends, 3) == Slots{0, 2, 5});
    CHECK(best({0, 9, 9, 9, 9, 0}, ends, 1) ==
          Slots{0, 5}); // protected slots stay, whatever the budget is
    CHECK(best({5, 1, 4, 2, 3, 0}, free, 9) == Slots{0, 1, 2, 3, 4, 5});
    CHECK(best({5, 1, 4, 2, 3, 0}, free, 0).empty());
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(best({-inf, inf, 0, -inf, inf, 1}, free, 3) == Slots{1, 4, 5});
}

TEST_CASE("Of equal scores, the newer slot stays") {
    CHECK(best({1, 1, 1, 1, 1}, std::vector<uint8_t>(5, 0), 2) == Slots{3, 4});
    CHECK(best({2, 1, 2, 1, 2}, std::vector<uint8_t>(5, 0), 2) == Slots{2, 4});
    CHECK(best({0.0f, -0.0f, 0.0f}, std::vector<uint8_t>(3, 0), 1) == Slots{2});
}

TEST_CASE("A score that is NaN is reported with policy, layer, head and slot") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(error_text(
              [&] {
                  best({1, 2, nan}, std::vector<uint8_t>(3, 1), 3);
              },
              ErrorKind::plugin) == "policy p, layer 3, head 1: the score of slot 2 is NaN");
}

TEST_CASE("A policy's list is checked, protected slots are added, and the oldest others are cut") {
    const std::vector<uint8_t> free(6, 0), ends = {1, 0, 0, 0, 0, 1};
    CHECK(listed({1, 3}, free, 6) == Slots{1, 3});
    CHECK(listed({1, 3}, ends, 6) == Slots{0, 1, 3, 5});
    CHECK(listed({1, 3, 4}, ends, 3) == Slots{0, 4, 5});
    CHECK(listed({0, 1, 2, 3, 4, 5}, free, 2) == Slots{4, 5});
    CHECK_THAT(error_text(
                   [&] {
                       listed({1, 1}, free, 6);
                   },
                   ErrorKind::plugin),
               Contains("policy p, layer 3, head 1") && Contains("not strictly rising"));
    CHECK_THAT(error_text([&] { listed({1, 6}, free, 6); }, ErrorKind::plugin), Contains("slot 6"));
    CHECK_THAT(error_text([&] { listed({-1}, free, 6); }, ErrorKind::plugin), Contains("slot -1"));
}

TEST_CASE("The eviction log has one JSON object per line, which is readable immediately") {
    const TempFolder folder;
    const auto path = folder / "log.jsonl";
    EvictionLog log(path.string(), "odd\"name");
    EvictionRecord record;
    record.tokens = 77;
    record.trigger = KEEL_TRIGGER_CHUNK;
    record.layer = 2;
    record.kept_max = 9;
    log.write(record);
    const std::vector<float> scores = {4, 3, 2, 1, 0, 99, 99, 99};
    const std::vector<int32_t> lengths = {5};
    record.summarize(scores, lengths, 8, 1);
    log.write(record);
    std::ifstream in(path);
    std::string first, second;
    std::getline(in, first);
    std::getline(in, second);
    CHECK_THAT(first, Contains(R"("tokens":77)") && Contains(R"("trigger":"chunk")") &&
                          Contains(R"("policy":"odd\"name")") && Contains(R"("kept_max":9)"));
    CHECK(first.find("scores") == std::string::npos);
    CHECK_THAT(second, Contains(R"("scores":{"min":0,"p25":1,"median":2,"p75":3,"max":4}})"));
    CHECK_THAT(error_text([&] { EvictionLog((folder / "no/such/log").string(), "p"); }),
               Contains("policy.log"));
    const auto thesis = folder.write("thesis.txt", "mine");
    CHECK_THAT(error_text([&] { EvictionLog(thesis.string(), "p"); }),
               Contains("the file exists and is not an eviction log"));
}

TEST_CASE("An eviction log does not change an older file before it is opened, and locks its file") {
    const TempFolder folder;
    const auto path = folder.write("log.jsonl", "{\"sequence\":1}\n");
    const auto content = [&] {
        std::ifstream in(path);
        std::string line;
        std::getline(in, line);
        return line;
    };
    {
        EvictionLog log(path.string(), "p");
        CHECK(content() == "{\"sequence\":1}");
        // The same file by another path.
        const std::string twice =
            error_text([&] { EvictionLog((folder / "./log.jsonl").string(), "q"); });
        CHECK(twice.starts_with("policy.log: "));
        CHECK_THAT(twice, Contains("another pipeline"));
        log.open();
        CHECK(content().empty());
        log.write({});
        log.open(); // a second sequence of the same pipeline
        CHECK_THAT(content(), Contains("\"tokens\":0"));
    }
    CHECK_NOTHROW(EvictionLog(path.string(), "q"));
    CHECK_FALSE(content().empty());
    EvictionLog first("/dev/null", "p"), second("/dev/null", "q");
    CHECK_THAT(error_text([&] { EvictionLog(folder.path().string(), "p"); }),
               Contains("is a folder"));
    EvictionLog((folder / "new.jsonl").string(), "p");
    CHECK_FALSE(std::filesystem::exists(folder / "new.jsonl"));
}
