// Tests of keel ab that run the program: the shipped experiments with two items of each task,
// shards, the environment of mpirun, and refused inputs.
#include "apps/keel_process.hpp"
#include "support/skip.hpp"

#include <csignal>
#include <set>

using namespace keel::test;

namespace {

namespace fs = std::filesystem;
const std::string quick = source_folder + "/configs/ab/quick.yaml";

// Returns the items of a results file without their times, which differ between runs.
std::multiset<std::string> items(const fs::path &file) {
    std::multiset<std::string> all;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        auto json = nlohmann::json::parse(line);
        if (json.value("kind", "") != "item" || json.value("task", "") == "speed") continue;
        json.erase("eviction_us");
        all.insert(json.dump());
    }
    return all;
}

std::string small_experiment(const TempFolder &folder) {
    return folder
        .write("small.yaml", "base: " + source_folder +
                                 "/configs/ab/pipeline.yaml\n"
                                 "arms: {full: {policy: none}, window: {policy: sliding_window}}\n"
                                 "budgets: [{tokens: 48}]\n"
                                 "tasks: [{kind: passkey, lengths: [160], depths: 2, items: 2}]\n"
                                 "output: out\n")
        .string();
}

} // namespace

TEST_CASE("the quick experiment runs with two items of each task and gives verdicts and a report") {
    const TempFolder folder;
    const std::string out = folder / "quick";
    const ProcessResult r = run_keel({"ab", quick, "--items", "2", "-o", out});
    INFO(r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "Planned contrasts"));
    CHECK(contains(r.out, "snapkv"));
    CHECK(contains(r.out, "report: "));
    CHECK(contains(r.err,
                   // without a progress bar, there is one line for each part
                   "passkey (whole_prompt): 2 documents"));
    for (const char *file : {"results.jsonl", "summary.json", "report.html", "resolved.yaml"})
        CHECK(fs::file_size(fs::path(out) / file) > 1000);
    // A second run finds all items done and prints the same.
    const auto before = items(fs::path(out) / "results.jsonl");
    const ProcessResult again = run_keel({"ab", quick, "--items", "2", "-o", out, "--json", "-q"});
    REQUIRE(again.code == 0);
    CHECK(again.err.empty());
    CHECK(nlohmann::json::parse(again.out).is_object());
    CHECK(items(fs::path(out) / "results.jsonl") == before);
    // The resolved form of the file describes the same experiment.
    const ProcessResult resolved = run_keel({"ab", out + "/resolved.yaml", "--items", "2", "-q"});
    INFO(resolved.err);
    CHECK(resolved.code == 0);
    CHECK(items(fs::path(out) / "results.jsonl") == before);
}

TEST_CASE("a dry run shows the grid and its cost, and writes nothing") {
    const TempFolder folder;
    const std::string out = folder / "quick";
    const ProcessResult text = run_keel({"ab", quick, "--dry-run", "-o", out});
    INFO(text.err);
    REQUIRE(text.code == 0);
    for (const char *part : {"random", "ratio:0.25", "1,2", "whole_prompt", "about "})
        CHECK(contains(text.out, part));
    const ProcessResult json = run_keel({"ab", quick, "--dry-run", "--json", "-o", out});
    REQUIRE(json.code == 0);
    const auto cost = nlohmann::json::parse(json.out);
    CHECK(cost.at("arms").size() == 4);
    CHECK(cost.at("prefill_tokens") > 1000);
    CHECK(cost.at("estimated_seconds") > 0);
    CHECK_FALSE(fs::exists(out));
}

TEST_CASE("shards, from an option or from mpirun, give the results of one process, and the last "
          "one merges") {
    const TempFolder folder;
    const std::string file = small_experiment(folder), whole = folder / "whole",
                      shards = folder / "shards", ranks = folder / "ranks";
    REQUIRE(run_keel({"ab", file, "-o", whole, "-q"}).code == 0);
    const auto expected = items(fs::path(whole) / "results.jsonl");
    REQUIRE(expected.size() == 12);
    const ProcessResult second = run_keel({"ab", file, "-o", shards, "--shard", "2/2"});
    REQUIRE(second.code == 0);
    CHECK(second.out.empty());
    CHECK(contains(second.err, "shard 2 of 2 is done"));
    CHECK_FALSE(fs::exists(fs::path(shards) / "results.jsonl"));
    const ProcessResult first = run_keel({"ab", file, "-o", shards, "--shard", "1/2"});
    REQUIRE(first.code == 0);
    CHECK(contains(first.out, "report: "));
    CHECK(items(fs::path(shards) / "results.jsonl") == expected);

    for (const char *rank : {"0", "1"}) {
        ProcessOptions options;
        options.environment = {std::string("OMPI_COMM_WORLD_RANK=") + rank,
                               "OMPI_COMM_WORLD_SIZE=2"};
        const ProcessResult r = run_keel({"ab", file, "-o", ranks, "-q"}, options);
        INFO(r.err);
        REQUIRE(r.code == 0);
        CHECK(r.out.empty() == (*rank == '0'));
    }
    CHECK(items(fs::path(ranks) / "results.jsonl") == expected);
    ProcessOptions both;
    both.environment = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"};
    const ProcessResult r = run_keel({"ab", file, "-o", ranks, "--shard", "1/3"}, both);
    CHECK(r.code == 2);
    CHECK(contains(r.err, "--shard 1/3 (1/3) and OMPI_COMM_WORLD_RANK"));
    // A Slurm array does the same.
    for (const char *id : {"0", "1"}) {
        ProcessOptions array;
        array.environment = {std::string("SLURM_ARRAY_TASK_ID=") + id, "SLURM_ARRAY_TASK_COUNT=2",
                             "SLURM_ARRAY_TASK_MIN=0", "SLURM_ARRAY_TASK_MAX=1"};
        REQUIRE(run_keel({"ab", file, "-o", folder / "array", "-q"}, array).code == 0);
    }
    CHECK(items(folder / "array/results.jsonl") == expected);
    // A merge without the first shard gives the command that runs it.
    const ProcessResult merged =
        run_keel({"ab", "merge", folder / "merged", folder / "array/shard-2-of-2.jsonl"});
    INFO(merged.err);
    CHECK(merged.code == 0);
    CHECK(contains(merged.err, "shard 1 is missing; this runs it alone: keel ab run " + file +
                                   " --output " + (folder / "array").string() + " --shard 1/2"));
}

TEST_CASE("shards in batches give the results of one process, and a dry run describes them") {
    const TempFolder folder;
    const std::string file = small_experiment(folder), whole = folder / "whole",
                      parts = folder / "parts";
    REQUIRE(run_keel({"ab", file, "-o", whole, "-q", "--batch", "3"}).code == 0);
    for (const std::string shard : {"1/2", "2/2"})
        REQUIRE(run_keel({"ab", file, "-o", parts, "-q", "--batch", "3", "--shard", shard}).code ==
                0);
    CHECK(items(fs::path(parts) / "results.jsonl") == items(fs::path(whole) / "results.jsonl"));
    CHECK(fs::exists(fs::path(parts) / "report.html"));
    const ProcessResult dry = run_keel({"ab", file, "--batch", "3", "--dry-run", "--json"});
    INFO(dry.err);
    const auto cost = nlohmann::json::parse(dry.out);
    CHECK(cost.at("batch") == 3);
    CHECK(cost.at("measured_seconds") > 0);
    CHECK(cost.at("prompts") == "plain text");
}

TEST_CASE("mpirun divides an experiment among processes") {
    if (!fs::exists("/usr/bin/mpirun")) skip("no mpirun here (Debian: openmpi-bin)");
    const TempFolder folder;
    const std::string file = small_experiment(folder), whole = folder / "whole",
                      spread = folder / "spread";
    REQUIRE(run_keel({"ab", file, "-o", whole, "-q"}).code == 0);
    ProcessOptions options;
    options.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
    const ProcessResult r = run_process({"/usr/bin/mpirun", "--oversubscribe", "-n", "2",
                                         std::string(KEEL_BINARY_DIR) + "/bin/keel", "ab", file,
                                         "-o", spread, "-q", "--set", "backend.params.threads=1"},
                                        options);
    INFO(r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "report: "));
    CHECK(items(fs::path(spread) / "results.jsonl") == items(fs::path(whole) / "results.jsonl"));
}

TEST_CASE("a killed experiment continues at the place where it ended") {
    const TempFolder folder;
    const std::string file = small_experiment(folder), whole = folder / "whole",
                      cut = folder / "cut";
    REQUIRE(run_keel({"ab", file, "-o", whole, "-q"}).code == 0);
    const fs::path results = fs::path(cut) / "results.jsonl";
    ProcessOptions options;
    options.timeout = std::chrono::seconds(60);
    options.on_output = {};
    // This run ends after two items, in the middle of a line.
    REQUIRE(run_keel({"ab", file, "-o", cut, "-q", "--items", "2"}).code == 0);
    fs::resize_file(results, fs::file_size(results) - 40);
    REQUIRE(run_keel({"ab", file, "-o", cut, "-q"}).code == 0);
    CHECK(items(results) == items(fs::path(whole) / "results.jsonl"));
}

TEST_CASE("keel ab refuses wrong requests with one line and exit code 2") {
    const TempFolder folder;
    const std::string file = small_experiment(folder);
    REQUIRE(run_keel({"ab", file, "-q", "--items", "1"}).code ==
            0); // writes to the folder that the file names
    CHECK(fs::exists(folder / "out/report.html"));
    const std::string other =
        folder
            .write("other.yaml",
                   "base: " + source_folder +
                       "/configs/ab/pipeline.yaml\narms: {full: {policy: none}}\n"
                       "tasks: [{kind: passkey, lengths: [160], items: 1}]\noutput: out\n")
            .string();
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
        {{"ab"}, "FILE"},
        {{"ab", "nowhere.yaml"}, "no such file"},
        {{"ab", file, "--shard", "3/2"}, "expected I/N"},
        {{"ab", file, "--items", "0"}, "--items"},
        {{"ab", file, "--batch", "0"}, "--batch: expected an integer from 1 to 256, found '0'"},
        {{"ab", file, "--batch", "-2"}, "from 1 to 256"},
        {{"ab", file, "--batch", "99999999999999999999"}, "from 1 to 256"},
        {{"ab", file, "--batch", "2"}, "made with batch 1, but this experiment uses 2"},
        {{"ab", file, "--set", "kv.dtyp=f32"}, "did you mean 'dtype'?"},
        {{"ab", other}, "another experiment's results"},
        {{"ab", quick, "-o", file}, "cannot create this folder"},
    };
    for (const auto &[arguments, message] : wrong) {
        const ProcessResult r = run_keel(arguments);
        INFO(r.err);
        CHECK(r.code == 2);
        CHECK(contains(r.err, message));
        CHECK(r.out.empty());
        CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    }
}
