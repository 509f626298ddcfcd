// Decode steps that are recorded once and submitted again (sync.replay) write the same text, to the token, as steps that are queued op by
// op: KV dtypes x policies, on each GPU backend.
#include "device/trace.hpp"
#include "plugins/backends/rig.hpp"
#include "run/generate.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>

using namespace keel;
using keel::test::backends;

namespace {

const std::string opening = "Once upon a time there was a king who had three daughters, and the youngest of "
                            "them was so fair that the sun";

pipeline::PipelineConfig config_of(const std::string &backend, const std::string &kv,
                                   const std::string &policy, const std::vector<std::string> &more) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "kv.dtype=" + kv,
                                     "policy.plugin=" + policy,
                                     "strict=true",
                                     "sampling.temperature=0",
                                     "sampling.repetition_penalty=1"};
    if (policy != "none") sets.insert(sets.end(), {"policy.budget.tokens=24", "policy.budget.slack=4"});
    if (policy == "snapkv") sets.push_back("policy.params.window=8");
    sets.insert(sets.end(), more.begin(), more.end());
    return pipeline::config_from_overrides(sets);
}

struct Cell {
    std::string kv, policy;
};

std::vector<Cell> cells() {
#ifdef KEEL_WHOLE_GRID
    // Each type and each policy twice, beside others. Types change what kernels are recorded, policies what is done between recordings:
    // neither knows of the other.
    const std::vector<std::string> kv = {"f32", "f16", "bf16", "q8_0", "q4_0"},
                                   policies = {"none", "sliding_window", "snapkv", "h2o", "tova"};
    std::vector<Cell> all;
    for (const size_t shift : {0, 2})
        for (size_t i = 0; i < kv.size(); ++i)
            all.push_back({kv[i], policies[(i + shift) % policies.size()]});
    return all;
#else
    return {{"f16", "sliding_window"}, {"q8_0", "none"}, {"f32", "h2o"}, {"bf16", "snapkv"}};
#endif
}

GenerateResult text_of(Pipeline &pipeline, int64_t tokens) {
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = tokens;
    options.ignore_end = true;
    return generate(session, pipeline.tokenizer()->encode(opening), options);
}

// Of processor time of this thread: drivers compute on others.
double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

} // namespace

TEST_CASE("steps that are replayed write the same text, with evictions in their midst as well") {
    for (const std::string &backend : backends()) {
        for (const Cell &cell : cells()) {
            INFO(backend << ", KV " << cell.kv << ", " << cell.policy);
            Pipeline apart(config_of(backend, cell.kv, cell.policy, {"sync.replay=off", "sync=lazy"}));
            const GenerateResult expected = text_of(apart, 41);
            CHECK(expected.stats.decode_stream.replays == 0);
            CHECK(expected.stats.no_replay == "sync.replay: off");
            Pipeline replayed(config_of(backend, cell.kv, cell.policy, {"sync=lazy"}));
            const GenerateResult result = text_of(replayed, 41);
            CHECK(result.ids == expected.ids);
            CHECK(result.stats.decode_tokens == 40);
            CHECK(result.stats.decode_stream.replays >= 34);
            CHECK(result.stats.decode_stream.replays < 40);
            CHECK(result.stats.no_replay.empty());
            CHECK(result.stats.evictions == expected.stats.evictions);
            if (cell.policy != "none") CHECK(result.stats.evictions >= (cell.policy == "snapkv" ? 1 : 3));
            // What is counted does not depend on it.
            CHECK(result.stats.decode_stream.ops == expected.stats.decode_stream.ops);
            CHECK(result.stats.decode_stream.waits == expected.stats.decode_stream.waits);
            CHECK(result.stats.decode_stream.submits == expected.stats.decode_stream.submits);
            const std::string line = closing_line(result);
            CHECK_THAT(line, Catch::Contains(fmt::format(" | decode steps replayed: {} of 40",
                                                         result.stats.decode_stream.replays)));
        }
    }
}

TEST_CASE("sequences that take turns, and one that goes back, write what they write alone") {
    for (const std::string &backend : backends()) {
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
}

TEST_CASE("a trace has a line for the device, with every op of it, and they end before the host reads what "
          "they made") {
    const bool ahead = GENERATE(false, true); // the last step is then under way when the trace ends
    for (const std::string &backend : backends()) {
        INFO(backend << (ahead ? ", a step ahead" : ""));
        const test::TempFolder folder;
        const auto file = folder / "trace.json";
        {
            Trace trace(file);
            std::vector<std::string> more;
            if (backend == "vulkan") more.push_back("backend.params.read_later=on"); // on a processor, too
            Pipeline pipeline(config_of(backend, "f32", "none", more));
            pipeline.set_trace(&trace);
            Session session(pipeline);
            session.prefill(pipeline.tokenizer()->encode(opening));
            session.decode(11);
            const int32_t next = session.greedy(ahead);
            if (ahead) {
                session.decode(next);
                session.greedy(true);
                session.drop_ahead();
                CHECK(session.stats().ahead_steps == 1);
                CHECK(session.stats().vain_steps == 1);
            }
            const SessionStats &stats = session.stats();
            CHECK(stats.decode_stream.replays == 0);
            CHECK(stats.no_replay == "a trace shows each op");
            pipeline.set_trace(nullptr);
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
        if (!ahead) CHECK(last_op <= last_read + 1000); // microseconds: two clocks
    }
}

// Not run by itself: backend_replay_tests "[measure]" prints what the table in docs/opencl.md and docs/vulkan.md was made of.
TEST_CASE("what a decode step costs the host, op by op and replayed", "[.][measure]") {
    constexpr int runs = 9, tokens = 60;
    for (const std::string &backend : backends()) {
        Pipeline apart(config_of(backend, "f16", "none", {"sync.replay=off", "sync=lazy"})),
            replayed(config_of(backend, "f16", "none", {"sync=lazy"}));
        std::vector<double> host[2], wall[2]; // us per token
        for (int run = 0; run <= runs; ++run) {
            for (int side = 0; side < 2; ++side) { // in turns: a busy machine is busy for both
                Session session(side == 0 ? apart : replayed);
                session.prefill(apart.tokenizer()->encode(opening));
                int32_t id = session.greedy();
                const auto start = std::chrono::steady_clock::now();
                const double before = thread_seconds();
                for (int i = 0; i < tokens; ++i) {
                    session.decode(id);
                    id = session.greedy();
                }
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
                if (run == 0) continue; // compiles, and warms up
                host[side].push_back(1e6 * (thread_seconds() - before) / tokens);
                wall[side].push_back(1e6 * took.count() / tokens);
            }
        }
        const auto median = [](std::vector<double> values) {
            std::sort(values.begin(), values.end());
            return values[values.size() / 2];
        };
        std::vector<double> ratio;
        for (int run = 0; run < runs; ++run)
            ratio.push_back(wall[0][static_cast<size_t>(run)] / wall[1][static_cast<size_t>(run)]);
        WARN(fmt::format(
            "{}: the host's thread {:.0f} us a token op by op, {:.0f} us replayed; a token takes {:.0f} us "
            "and {:.0f} us, replayed {:.2f} times as fast (medians of {} paired runs of {} tokens)",
            backend, median(host[0]), median(host[1]), median(wall[0]), median(wall[1]), median(ratio), runs,
            tokens));
    }
}
