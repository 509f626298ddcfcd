#include "eval/bench/matrix/matrix.hpp"
#include "eval/bench/matrix/page.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/page_checks.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

using namespace keel;
using test::contains;

namespace {

constexpr const char *full = R"(models:
  - ../m/tiny
  - {path: /abs/tiny, name: tiny q4, set: {model.weights: q4_0}}
backends: [cpu, {plugin: cpu, name: cpu-1, set: {backend.params.threads: 1}}]
kv: [f16, q8_0]
policies:
  - none
  - plugin: sliding_window
    set: {policy.budget.tokens: 64, policy.trigger.on: [prefill_end, budget]}
lengths: [16, 32]
decode: 8
repeat: 2
probe_mib: 4
set: {model.context: 256}
)";

nlohmann::json result(const std::string &model) {
    const nlohmann::json rate = {{"median", 12.5}, {"min", 10}, {"max", 13}};
    return {{"version", "1"},
            {"machine", {{"cpu", "A Processor"}}},
            {"backend", {{"plugin", "cpu"}, {"sync", "lazy"}}},
            {"model", {{"path", model}, {"weights", "q4_0"}}},
            {"kv", {{"key_dtype", "f16"}, {"value_dtype", "f16"}, {"policy", "none"}}},
            {"peak_resident_bytes", 1048576},
            {"load_seconds", 0.5},
            {"prefill", {{{"tokens", 16}, {"tokens_per_second", rate}, {"of_peak", 0.5}}}},
            {"decode",
             {{{"depth", 16},
               {"tokens_per_second", rate},
               {"of_bandwidth", nullptr},
               {"kv_bytes", 4096}},
              {{"depth", 64},
               {"tokens_per_second", rate},
               {"kv_bytes", 8192},
               {"held_bytes", 9000},
               {"held_peak_bytes", 20000}}}}};
}

} // namespace

TEST_CASE("a matrix is every combination of its axes, and each has its own key") {
    const test::TempFolder folder;
    const BenchMatrix m = load_matrix(folder.write("sub/matrix.yaml", full), "cpu");
    REQUIRE(m.models.size() == 2);
    CHECK(m.models[0].name == "tiny");
    CHECK(m.models[0].path == folder.path() / "m" / "tiny");
    CHECK(m.models[1].path == "/abs/tiny");
    CHECK(m.decode == 8);
    CHECK(m.probe_mib == 4);
    const auto runs = matrix_runs(m);
    REQUIRE(runs.size() == 2 * 2 * 2 * 2 * 2);
    CHECK(runs[0].name() == "tiny / cpu / f16 / none / 16");
    CHECK(runs[31].name() == "tiny q4 / cpu-1 / q8_0 / sliding_window / 32");
    CHECK(runs[31].sets ==
          std::vector<std::string>{"model.context=256", "model.weights=q4_0", "backend.plugin=cpu",
                                   "backend.params.threads=1", "kv.dtype=q8_0",
                                   "policy.plugin=sliding_window", "policy.budget.tokens=64",
                                   "policy.trigger.on=[prefill_end, budget]"});
    std::set<std::string> keys, files;
    for (const MatrixRun &run : runs) {
        keys.insert(run.key(m, "here"));
        files.insert(run.file_name(run.key(m, "here")));
        CHECK(run.key(m, "here") != run.key(m, "there"));
        CHECK(run.key(m, "here") == run.key(m, "here"));
    }
    CHECK(keys.size() == runs.size());
    CHECK(files.size() == runs.size());
    CHECK(m.sequences == std::vector<int64_t>{1});
    BenchMatrix together = m;
    together.sequences = {1, 4};
    CHECK(runs[0].key(together, "here") != runs[0].key(m, "here"));
    BenchMatrix longer = m;
    longer.decode = 9;
    CHECK(runs[0].key(longer, "here") != runs[0].key(m, "here"));
    CHECK(contains(runs[31].file_name("k"), "tiny_q4-cpu-1-q8_0-sliding_window-32-k.json"));
}

TEST_CASE("sync strategies are an axis of a matrix") {
    const test::TempFolder folder;
    const auto file = folder.write(
        "m.yaml",
        "models: tiny\nlengths: [8, 16]\nkv: [f16, q8_0]\n"
        "sync: [eager, {strategy: batched, name: batched 10, set: {sync.ops: 10}}, lazy]\n");
    const auto runs = matrix_runs(load_matrix(file, "cpu"));
    REQUIRE(runs.size() == 2 * 3 * 2);
    CHECK(runs[0].name() == "tiny / cpu / f16 / none / eager / 8");
    CHECK(runs[2].name() == "tiny / cpu / f16 / none / batched 10 / 8");
    CHECK(runs[2].sets == std::vector<std::string>{"backend.plugin=cpu", "kv.dtype=f16",
                                                   "policy.plugin=none", "sync.strategy=batched",
                                                   "sync.ops=10"});
    CHECK(contains(runs[2].file_name("k"), "tiny-cpu-f16-none-batched_10-8-k.json"));
    CHECK(contains(runs[2].fault(PlacedError(ErrorKind::input, {"--set sync.ops"}, "wrong")),
                   "m.yaml:4:"));
    const auto twice = [&] {
        load_matrix(folder.write("twice.yaml", "models: m\nlengths: 8\nsync: [lazy, lazy]\n"),
                    "cpu");
    };
    CHECK(contains(test::error_text(twice), "two items have the name 'lazy'"));
}

TEST_CASE("a matrix needs only a few keys") {
    const test::TempFolder folder;
    const BenchMatrix m = load_matrix(folder.write("m.yaml", "models: tiny\nlengths: 8\n"), "cpu");
    const auto runs = matrix_runs(m);
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].name() == "tiny / cpu / f16 / none / 8");
    CHECK_FALSE(m.probe_mib);
}

TEST_CASE("a broken matrix is refused with file and line") {
    const test::TempFolder folder;
    const auto refused = [&](const std::string &text) {
        return test::error_text([&] { load_matrix(folder.write("m.yaml", text), "cpu"); });
    };
    CHECK(contains(refused("models: tiny\nlenghts: 8\n"),
                   "m.yaml:2:1: unknown key 'lenghts' in a matrix; did you "
                   "mean 'lengths'?"));
    CHECK(contains(refused("lengths: 8\n"), "'models' is missing"));
    CHECK(contains(refused("models: tiny\n"), "'lengths' is missing"));
    CHECK(contains(refused("- 1\n"), "expected a map"));
    CHECK(contains(refused("models: []\nlengths: 8\n"), "at least one entry"));
    CHECK(contains(refused("models: tiny\nlengths: [8, x]\n"), "m.yaml:2:"));
    CHECK(contains(refused("models: tiny\nlengths: [8, 0]\n"), "m.yaml:2:"));
    CHECK(contains(refused("models: tiny\nlengths: [8, 8]\n"), "twice"));
    CHECK(contains(refused("models: [a/tiny, b/tiny]\nlengths: 8\n"),
                   "two items have the name 'tiny'"));
    CHECK(contains(refused("models: [{name: x}]\nlengths: 8\n"), "'path' is missing"));
    CHECK(contains(refused("models: tiny\nlengths: 8\nset: 5\n"), "keys of a pipeline"));
    CHECK(contains(refused("models: tiny\nlengths: 8\nset: {a: {b: 1}}\n"), "a value, or a list"));
    CHECK(contains(refused("models: tiny\nlengths: 8\nset: {policy.log: x}\n"),
                   "cannot be set here"));
    CHECK(contains(refused("models: tiny\nlengths: 8\nrepeat: 0\n"), "repeats from 1"));
    for (const char *wrong : {"0", "[1, -4]", "257", "99999999999999999999", "many"})
        CHECK(contains(refused("models: tiny\nlengths: 8\nbatch: " + std::string(wrong) + "\n"),
                       "expected sequences at once from 1 to 256"));
    CHECK(
        contains(refused("models: tiny\nlengths: 8\nbatch: [2, 2]\n"), "batch: 2 is listed twice"));
    CHECK(contains(refused("models: tiny\nlengths: 8\nbatch: []\n"), "at least one entry"));
    std::string many = "models: tiny\nlengths: [1";
    for (int i = 2; i <= 5001; ++i) many += "," + std::to_string(i);
    CHECK(contains(refused(many + "]\nkv: [f16, q8_0, f32]\n"), "at most 10000"));
}

TEST_CASE("a report shows runs and plain results, and escapes their texts") {
    const test::TempFolder folder;
    const std::string evil = "<script>alert('x')</script>&\"";
    nlohmann::json run = {
        {"format", "keel-bench-run/1"},
        {"key", "k"},
        {"axes", {{"model", evil}, {"backend", "cpu"}, {"policy", "none"}, {"sync", "batched 10"}}},
        {"commit", "abc"},
        {"date", "2026-11-21"},
        {"result", result("/m/" + evil)}};
    folder.write("runs/a.json", run.dump());
    const auto plain = folder.write("b.json", result("/models/tiny").dump());
    const auto lines = load_bench_lines({folder / "runs", plain});
    REQUIRE(lines.size() == 4); // two depths each
    CHECK(lines[0].model == evil);
    CHECK(lines[0].commit == "abc");
    CHECK(lines[0].sync == "batched 10");
    CHECK(lines[0].name.ends_with(" / none / batched 10"));
    CHECK(lines[0].prefill->median == 12.5);
    CHECK(lines[0].prefill->share == 0.5);
    CHECK_FALSE(lines[0].decode->share);
    // results of an older version contain only the bytes of the cache
    CHECK(lines[0].held_bytes == 4096);
    CHECK_FALSE(lines[0].held_peak_bytes);
    CHECK(lines[1].depth == 64);
    CHECK(lines[1].held_bytes == 9000);
    CHECK(lines[1].held_peak_bytes == 20000);
    CHECK_FALSE(lines[1].prefill);
    CHECK(lines[2].model == "tiny");
    // the value comes from the pipeline, because `sync` is not an axis
    CHECK(lines[2].sync == "lazy");
    CHECK(lines[2].name.ends_with(" / none"));
    const std::string page = bench_html(lines, "A & B");
    CHECK(contains(page, "<title>A &amp; B</title>"));
    CHECK_FALSE(contains(page, "<script>alert"));
    test::check_offline(page);
    const auto data = test::data_of(page);
    CHECK(data.at("title") == "A & B");
    REQUIRE(data.at("rows").size() == 4);
    for (const auto &row : data.at("rows")) CHECK(row.size() == data.at("columns").size());
    CHECK(data.at("rows").at(0).at(1) == evil);
    CHECK(test::data_of(bench_html({}, "empty")).at("rows").empty());
}

TEST_CASE("files that are not results are refused by name") {
    const test::TempFolder folder;
    const auto refused = [&](const std::string &text) {
        const auto file = folder.write("x.json", text);
        return test::error_text([&] { load_bench_lines({file}); });
    };
    CHECK(contains(refused("{"), "x.json:1:2: not valid JSON"));
    CHECK(contains(refused("[1,2]"), "expected a result"));
    CHECK(contains(refused("{\"format\":\"keel-bench-run/1\"}"), "expected a result"));
    CHECK(contains(refused(std::string(100000, '[')), "x.json"));
    std::filesystem::create_directory(folder / "none");
    CHECK(contains(test::error_text([&] { load_bench_lines({folder / "none"}); }), "no results"));
    // Members of a wrong type are ignored.
    nlohmann::json odd = result("m");
    odd["prefill"][0]["tokens"] = "many";
    odd["decode"][0]["tokens_per_second"] = {1, 2};
    odd["decode"][1]["depth"] = 1e300;
    odd["version"] = 5;
    const auto lines = load_bench_lines({folder.write("odd.json", odd.dump())});
    REQUIRE(lines.size() == 2);
    CHECK_FALSE(lines[0].prefill_tokens);
    CHECK_FALSE(lines[0].decode);
    CHECK_FALSE(lines[1].depth);
    CHECK_FALSE(bench_html(lines, "t").empty());
}
