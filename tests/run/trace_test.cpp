#include "device/trace.hpp"
#include "run/session.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

nlohmann::json read_trace(const std::filesystem::path &file) {
    std::ifstream in(file);
    return nlohmann::json::parse(in);
}

} // namespace

TEST_CASE("a trace has ops, submits, waits, evictions and counters, and is complete at any time") {
    const test::TempFolder folder;
    const std::filesystem::path file = folder / "trace.json";
    const std::vector<std::string> sets{
        std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny", "backend.plugin=cpu",
        "policy.plugin=sliding_window", "policy.budget.tokens=16", "policy.budget.slack=2"};
    Trace trace(file);
    // the names of the process and of the thread
    CHECK(read_trace(file).at("traceEvents").size() == 2);
    Pipeline pipeline(pipeline::config_from_overrides(sets));
    pipeline.executor().set_trace(&trace);
    Session session(pipeline);
    session.prefill(std::vector<int32_t>(24, 7));
    session.decode(5);
    (void)session.greedy();
    trace.flush();
    size_t then = 0;
    {
        const auto events = read_trace(file).at("traceEvents");
        then = events.size();
        std::map<std::string, int> names;
        for (const auto &event : events) {
            ++names[event.at("name").get<std::string>()];
            if (event.at("ph") != "X") continue;
            CHECK(event.at("dur") >= 0);
            CHECK(event.at("ts") >= 0);
        }
        CHECK(names["down"] == 12); // 6 layers in each of two steps
        CHECK(names["prefill"] == 1);
        CHECK(names["decode"] == 1);
        CHECK(names["eviction"] >= 1);
        CHECK(names["KV bytes"] >= 3);
        CHECK(names["tokens seen"] >= 3);
        CHECK(names["submit"] + names["wait"] + names["wait and read"] > 0);
        for (const auto &event : events) {
            if (event.at("name") != "down") continue;
            CHECK(event.at("args").at("op") == "matmul");
            CHECK(event.at("args").at("weight") == "bf16 [256, 768]");
            CHECK(event.at("args").at("layer").is_number());
        }
    }
    session.decode(6);
    trace.flush();
    CHECK(read_trace(file).at("traceEvents").size() > then + 50);
    pipeline.executor().set_trace(nullptr);
    session.decode(7);
    trace.flush();
    const size_t last = read_trace(file).at("traceEvents").size();
    session.decode(8);
    trace.flush();
    // tracing is off, so no event was added
    CHECK(read_trace(file).at("traceEvents").size() == last);
}

TEST_CASE("a trace never replaces another kind of file") {
    const test::TempFolder folder;
    const auto file = folder.write("precious.txt", "years of work");
    CHECK(test::error_text([&] { Trace trace(file); }, ErrorKind::usage).find("is not a trace") !=
          std::string::npos);
    CHECK(std::filesystem::file_size(file) == 13);
    test::error_text([&] { Trace trace(folder.path()); }, ErrorKind::usage);
    test::error_text([&] { Trace trace(folder / "no" / "such" / "folder"); }, ErrorKind::usage);
    const auto mine = folder / "t.json";
    {
        Trace first(mine);
        first.span("a \"name\"\n\xFF", "c", 1, 0.5, {{"k", "1"}});
    }
    const auto events = read_trace(mine).at("traceEvents");
    CHECK(events.size() == 3);
    CHECK(events[2].at("dur") == 0);
    {
        Trace again(mine); // an old trace is replaced
        again.counter("n", 1.5);
    }
    CHECK(read_trace(mine).at("traceEvents").size() == 3);
}
