// Tests of decode steps that are recorded once and submitted again (sync.replay), on each GPU
// backend. They must give the same tokens as steps whose ops are queued one by one, for KV dtypes
// and policies.
#include "device/trace.hpp"
#include "run/generate.hpp"
#include "run/report.hpp"
#include "support/gpu_backends.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>

using namespace keel;
using test::here;
using test::opencl;
using test::vulkan;

namespace {

const std::string opening =
    "Once upon a time there was a king who had three daughters, and the youngest of "
    "them was so fair that the sun";

pipeline::PipelineConfig config_of(const std::string &backend, const std::string &kv,
                                   const std::string &policy,
                                   const std::vector<std::string> &more) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "kv.dtype=" + kv,
                                     "policy.plugin=" + policy,
                                     "strict=true",
                                     "sampling.temperature=0",
                                     "sampling.repetition_penalty=1"};
    if (policy != "none")
        sets.insert(sets.end(), {"policy.budget.tokens=24", "policy.budget.slack=4"});
    if (policy == "snapkv") sets.push_back("policy.params.window=8");
    sets.insert(sets.end(), more.begin(), more.end());
    return pipeline::config_from_overrides(sets);
}

struct Cell {
    std::string kv, policy;
};

// Dtypes change which kernels are recorded. Policies change what happens between recordings. These
// two effects are independent.
const std::vector<Cell> few_cells = {
    {"f16", "sliding_window"}, {"q8_0", "none"}, {"f32", "h2o"}, {"bf16", "snapkv"}};
// The other combinations of a list that contains each dtype and each policy twice.
const std::vector<Cell> more_cells = {{"f32", "none"},           {"q8_0", "h2o"}, {"q4_0", "tova"},
                                      {"f32", "snapkv"},         {"f16", "h2o"},  {"bf16", "tova"},
                                      {"q4_0", "sliding_window"}};

GenerateResult text_of(Pipeline &pipeline, int64_t tokens) {
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = tokens;
    options.ignore_end = true;
    return generate(session, pipeline.tokenizer()->encode(opening), options);
}

// Checks that replayed steps give the same tokens as steps whose ops are queued one by one.
void check_replays(const std::string &backend, const std::vector<Cell> &cells) {
    for (const Cell &cell : cells) {
        INFO(backend << ", KV " << cell.kv << ", " << cell.policy);
        Pipeline apart(config_of(backend, cell.kv, cell.policy, {"sync.replay=off", "sync=lazy"}));
        const GenerateResult expected = text_of(apart, 41);
        CHECK(expected.stats.decode_stream.replays == 0);
        CHECK(expected.stats.no_replay == "sync.replay: off");
        Pipeline replayed(config_of(backend, cell.kv, cell.policy, {"sync=lazy"}));
        const GenerateResult result = text_of(replayed, 41);
        CHECK(result.ids == expected.ids);
        CHECK(result.stats.decode_tokens == 40);
        // A step before an eviction also computes tova's scores, so it is recorded again.
        CHECK(result.stats.decode_stream.replays >= (cell.policy == "tova" ? 31 : 34));
        CHECK(result.stats.decode_stream.replays < 40);
        CHECK(result.stats.no_replay.empty());
        CHECK(result.stats.evictions == expected.stats.evictions);
        if (cell.policy != "none")
            CHECK(result.stats.evictions >= (cell.policy == "snapkv" ? 1 : 3));
        // The counted ops are the same with and without replay.
        CHECK(result.stats.decode_stream.ops == expected.stats.decode_stream.ops);
        CHECK(result.stats.decode_stream.waits == expected.stats.decode_stream.waits);
        CHECK(result.stats.decode_stream.submits == expected.stats.decode_stream.submits);
        const std::string line = closing_line(result);
        CHECK_THAT(line, Catch::Contains(fmt::format(" | decode steps replayed: {} of 40",
                                                     result.stats.decode_stream.replays)));
    }
}

} // namespace

TEMPLATE_TEST_CASE("replayed steps write the same text, also with evictions between them", "",
                   opencl, vulkan) {
    check_replays(here<TestType>(), few_cells);
}

TEMPLATE_TEST_CASE("steps that are replayed write the same text with more types and policies",
                   "[grid]", opencl, vulkan) {
    check_replays(here<TestType>(), more_cells);
}

TEMPLATE_TEST_CASE("sequences that take turns, and one that goes back, give the same text as alone",
                   "", opencl, vulkan) {
    const std::string backend = here<TestType>();
    INFO(backend);
    const auto run = [&](const char *replay) {
        PipelineOptions options;
        options.sequences = 2;
        Pipeline pipeline(config_of(backend, "f16", "none", {std::string("sync.replay=") + replay}),
                          options);
        Session first(pipeline);
        first.prefill(pipeline.tokenizer()->encode(opening));
        const std::unique_ptr<Session> second = first.fork();
        std::vector<int32_t> ids;
        int32_t a = 11, b = 12;
        for (int i = 0; i < 12; ++i) {
            first.decode(a);
            ids.push_back(a = first.greedy());
            second->decode(b);
            ids.push_back(b = second->greedy());
            if (i == 6) first.truncate(4);
        }
        return ids;
    };
    CHECK(run("auto") == run("off"));
}

TEMPLATE_TEST_CASE(
    "a trace shows every op of the device, and they end before the host reads their results", "",
    opencl, vulkan) {
    // true: the last step is still running when the trace ends
    const bool ahead = GENERATE(false, true);
    const std::string backend = here<TestType>();
    INFO(backend << (ahead ? ", a step ahead" : ""));
    const test::TempFolder folder;
    const auto file = folder / "trace.json";
    {
        Trace trace(file);
        std::vector<std::string> more;
        if (backend == "vulkan")
            more.push_back("backend.params.read_later=on"); // this also works on a processor
        Pipeline pipeline(config_of(backend, "f32", "none", more));
        pipeline.engines().set_trace(&trace);
        Session session(pipeline);
        session.prefill(pipeline.tokenizer()->encode(opening));
        session.decode(11);
        const int32_t next = session.greedy(ahead);
        if (ahead) {
            session.decode(next);
            session.greedy(true);
            session.drop_ahead();
            CHECK(session.stats().ahead_steps == 1);
            CHECK(session.stats().discarded_steps == 1);
        }
        const SessionStats &stats = session.stats();
        CHECK(stats.decode_stream.replays == 0);
        CHECK(stats.no_replay == "a trace shows each op");
        pipeline.engines().set_trace(nullptr);
    }
    std::ifstream in(file);
    const nlohmann::json trace = nlohmann::json::parse(in);
    std::map<std::string, int> on_host, on_device;
    double last_op = 0, last_read = 0;
    for (const auto &event : trace.at("traceEvents")) {
        const std::string category = event.value("cat", ""), name = event.at("name");
        if (category == "op") ++on_host[name];
        if (category == "device") ++on_device[name];
        if (event.at("ph") != "X") continue;
        const double end = event.at("ts").get<double>() + event.at("dur").get<double>();
        if (category == "device") last_op = std::max(last_op, end);
        if (name == "wait and read") last_read = std::max(last_read, end);
    }
    CHECK_FALSE(on_host.empty());
    CHECK(on_device == on_host);
    // in microseconds; host and device have different clocks
    if (!ahead) CHECK(last_op <= last_read + 1000);
}
