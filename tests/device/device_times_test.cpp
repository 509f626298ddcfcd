#include "support/mini_pipeline.hpp"

#include "device/trace.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>

using namespace keel;
using namespace keel::test;

namespace {

using Kind = SyncStrategy::Kind;

// Returns the events of the device's line in the trace, and the number of these lines.
struct DeviceLine {
    std::vector<nlohmann::json> spans;
    size_t lines = 0;
};

DeviceLine device_line(const std::filesystem::path &file) {
    std::ifstream in(file);
    DeviceLine found;
    const nlohmann::json trace = nlohmann::json::parse(in);
    for (const auto &event : trace.at("traceEvents")) {
        if (event.value("cat", "") == "device") found.spans.push_back(event);
        if (event.at("name") == "thread_name" && event.at("tid") != 1) {
            ++found.lines;
            CHECK(event.at("args").at("name") == "device: wrapping");
            CHECK(event.at("tid") == 2);
        }
    }
    return found;
}

DeviceLine traced_step(WrappingBackend &w, const TempFolder &folder,
                       SyncStrategy sync = {Kind::lazy, 0}) {
    const auto file = folder / "trace.json";
    {
        Trace trace(file);
        MiniPipeline p(w.open(), {true, nullptr, sync});
        const std::vector<int32_t> tokens = p.generate(2);
        p.executor.set_trace(&trace);
        p.step(tokens.back());
        p.executor.set_trace(nullptr);
    }
    return device_line(file);
}

constexpr size_t step_ops = 2 * 9 + 4;

} // namespace

TEST_CASE("a trace shows when the device ran each op, if the backend reports it") {
    const TempFolder folder;
    for (const SyncStrategy sync : {SyncStrategy{Kind::lazy, 0}, SyncStrategy{Kind::eager, 0},
                                    SyncStrategy{Kind::batched, 3}}) {
        WrappingBackend w;
        w.tells_times = true;
        const DeviceLine line = traced_step(w, folder, sync);
        REQUIRE(line.spans.size() == step_ops);
        CHECK(line.lines == 1);
        CHECK(line.spans.front().at("name") == "embedding");
        CHECK(line.spans.front().at("args").at("label") == "decode embedding");
        CHECK(line.spans.back().at("name") == "argmax");
        for (const auto &span : line.spans) {
            CHECK(span.at("dur") == Approx(5));
            CHECK(span.at("tid") == 2);
        }
        CHECK(w.count("times_enable") == 2); // once on, and once off when the trace was removed
        CHECK(w.live().none());
    }
}

TEST_CASE("an op without a time is left out, and the other ops keep their names") {
    const TempFolder folder;
    WrappingBackend w;
    w.tells_times = true;
    w.untimed_op = 1;
    const DeviceLine line = traced_step(w, folder);
    REQUIRE(line.spans.size() == step_ops - 1);
    CHECK(line.spans.front().at("name") == "attention norm");
    CHECK(line.spans.back().at("name") == "argmax");
}

TEST_CASE("a trace works without the device's times") {
    const TempFolder folder;
    WrappingBackend without;
    CHECK(traced_step(without, folder).spans.empty());
    CHECK(without.count("times_enable") == 0);
    WrappingBackend refuses;
    refuses.tells_times = true;
    refuses.fail_nth(1, KEEL_E_UNSUPPORTED, "times_enable");
    CHECK(traced_step(refuses, folder).spans.empty());
    CHECK(refuses.count("times_read") == 0);
    // without a clock, the end of the wait counts as the end of the last op
    WrappingBackend no_clock;
    no_clock.tells_times = true;
    no_clock.fail_nth(1, KEEL_E_UNSUPPORTED, "times_now");
    CHECK(traced_step(no_clock, folder).spans.size() == step_ops);
}

TEST_CASE("a backend that fails to report times is named") {
    const TempFolder folder;
    WrappingBackend w;
    w.tells_times = true;
    w.fail_nth(1, KEEL_E_INTERNAL, "times_read");
    const std::string message = error_text([&] { traced_step(w, folder); }, ErrorKind::runtime);
    CHECK(message.find("backend wrapping: reading device times") != std::string::npos);
    CHECK(message.find("injected into times_read") != std::string::npos);
}

TEST_CASE("without a trace, times are not requested") {
    WrappingBackend w;
    w.tells_times = true;
    MiniPipeline p(w.open(), {true, nullptr, {Kind::lazy, 0}});
    p.generate(3);
    for (const char *slot : {"times_enable", "times_read", "times_now"}) CHECK(w.count(slot) == 0);
}
