#include "support/contains.hpp"
#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

using namespace keel::test;

namespace {

const std::string tiny = std::string(KEEL_SOURCE_DIR) + "/models/tiny";
const std::string heldout = tiny + "/heldout.txt";

ProcessResult run_keel(std::vector<std::string> arguments, ProcessOptions options = {}) {
    arguments.insert(arguments.begin(), std::string(KEEL_BINARY_DIR) + "/bin/keel");
    return run_process(arguments, options);
}

ProcessResult run_in(const std::string &folder, std::vector<std::string> arguments) {
    ProcessOptions options;
    options.folder = folder;
    return run_keel(std::move(arguments), options);
}

nlohmann::json read_json(const std::filesystem::path &path) {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
}

std::string read_text(const std::filesystem::path &path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("keel eval perplexity prints a number with its error, or an object with each window") {
    const ProcessResult text =
        run_keel({"eval", "perplexity", tiny, "--text", heldout, "--max-tokens", "300", "--window", "100"});
    INFO(text.out << text.err);
    REQUIRE(text.code == 0);
    for (const char *part : {"300 of 300 tokens", "windows of up to 100", "perplexity", "+-", "nll"})
        CHECK(contains(text.out, part));
    const ProcessResult object = run_keel({"eval", "perplexity", tiny, "--text", heldout, "--max-tokens",
                                           "400", "--prefix", "100", "--continuation", "20", "--places", "3",
                                           "--policy", "sliding_window", "--budget", "32", "--json"});
    INFO(object.err);
    REQUIRE(object.code == 0);
    const auto json = nlohmann::json::parse(object.out);
    CHECK(json.at("scoring").at("mode") == "prefix");
    CHECK(json.at("windows").size() == 3);
    CHECK(json.at("tokens") == 60);
    CHECK(json.at("evictions") >= 3);
    const ProcessResult together = run_keel({"eval", "perplexity", tiny, "--text", heldout, "--max-tokens",
                                             "90", "--window", "32", "--step", "1", "--batch", "3"});
    INFO(together.out << together.err);
    REQUIRE(together.code == 0);
    CHECK(contains(together.out, "tokens/s taken in, 3 at once; KV at most "));
    // A context that is asked for is the window.
    const ProcessResult context =
        run_keel({"eval", "perplexity", tiny, "--text", heldout, "--max-tokens", "90", "-c", "64", "--json"});
    CHECK(nlohmann::json::parse(context.out).at("scoring").at("context") == 64);
}

TEST_CASE("keel eval kl holds a pipeline beside a reference") {
    const ProcessResult r = run_keel({"eval", "kl", tiny, "--weights", "q4_0", "--against", tiny, "--text",
                                      heldout, "--max-tokens", "200"});
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    for (const char *part : {"KL(reference || this)", "median", "90%", "99%", "max", "same most likely token",
                             "perplexity", "weights q4_0", "weights bf16"})
        CHECK(contains(r.out, part));
}

TEST_CASE("keel eval kl scores places side by side") {
    const ProcessResult r = run_keel({"eval",
                                      "kl",
                                      tiny,
                                      "--set",
                                      "policy.plugin=sliding_window",
                                      "--set",
                                      "policy.budget.tokens=40",
                                      "--against",
                                      tiny,
                                      "--text",
                                      heldout,
                                      "--prefix",
                                      "64",
                                      "--continuation",
                                      "8",
                                      "--places",
                                      "5",
                                      "--batch",
                                      "3",
                                      "--json"});
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    const auto json = nlohmann::json::parse(r.out);
    CHECK(json.at("batch") == 3);
    CHECK(json.at("tokens") == 40);
    CHECK(json.at("kl").at("mean") > 0);
}

TEST_CASE("keel eval refuses what makes no sense with one line") {
    for (const std::vector<std::string> &wrong : std::vector<std::vector<std::string>>{
             {"eval"},
             {"eval", "perplexity", tiny},
             {"eval", "perplexity", tiny, "--text", "nothing.txt"},
             {"eval", "perplexity", tiny, "--text", heldout, "--stride", "0"},
             {"eval", "perplexity", tiny, "--text", heldout, "--prefix", "10"},
             {"eval", "perplexity", tiny, "--text", heldout, "--prefix", "10", "--continuation", "5",
              "--window", "9"},
             {"eval", "perplexity", tiny, "--text", heldout, "--window", "5000"},
             {"eval", "perplexity", tiny, "--text", heldout, "--batch", "2"}, // many tokens at a time
             {"eval", "perplexity", tiny, "--text", heldout, "--temperature", "1"},
             {"eval", "kl", tiny, "--text", heldout},
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--batch", "0"},
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--batch", "100000000000"},
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--batch", "2"}, // many at a time
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--step", "1", "--batch", "2",
              "--against-set", "kv.max_mib=4"},
             {"eval", "kl", tiny, "--text", heldout, "--against",
              std::string(KEEL_SOURCE_DIR) + "/tests/golden/mini_plain"}}) {
        const ProcessResult r = run_keel(wrong);
        INFO(wrong.back() << "\n" << r.out << r.err);
        CHECK(r.code == 2);
        CHECK(r.out.empty());
        CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    }
}

TEST_CASE("keel bench matrix measures sequences at once beside one") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    folder.write("m.yaml",
                 "models: " + tiny + "\nlengths: 8\ndecode: 2\nrepeat: 1\nprobe_mib: 0\nbatch: [1, 3]\n");
    const ProcessResult r = run_in(here, {"bench", "matrix", "m.yaml", "-o", "out"});
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "1 measured"));
    std::vector<int64_t> sequences;
    for (const auto &entry : std::filesystem::directory_iterator(folder.path() / "out")) {
        std::ifstream in(entry.path());
        const auto json = nlohmann::json::parse(in);
        for (const auto &decode : json.at("result").at("decode"))
            sequences.push_back(decode.at("sequences"));
    }
    CHECK(sequences == std::vector<int64_t>{1, 3});
    folder.write("capped.yaml", "models: " + tiny + "\nlengths: 8\nbatch: 2\nset: {kv.max_mib: 4}\n");
    const ProcessResult refused = run_in(here, {"bench", "matrix", "capped.yaml"});
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, "capped.yaml:4:"));
    CHECK(contains(refused.err, "caps the cache of one sequence"));
}

TEST_CASE("keel bench matrix measures sync strategies") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    folder.write("m.yaml",
                 "models: " + tiny +
                     "\nlengths: 4\ndecode: 2\nrepeat: 1\nprobe_mib: 0\n"
                     "sync: [eager, {strategy: batched, name: b10, set: {sync.ops: 10}}]\n");
    const ProcessResult r = run_in(here, {"bench", "matrix", "m.yaml", "-o", "out"});
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    std::map<std::string, std::pair<std::string, double>> found;
    for (const auto &entry : std::filesystem::directory_iterator(folder / "out")) {
        const auto json = read_json(entry.path());
        const auto &result = json.at("result");
        found[json.at("axes").at("sync")] = {result.at("backend").at("sync"),
                                             result.at("decode").at(0).at("waits_per_token")};
    }
    REQUIRE(found.size() == 2);
    CHECK(found["eager"].first == "eager");
    CHECK(found["eager"].second > 10); // after each op
    CHECK(found["b10"].first == "batched: 10");
    CHECK(found["b10"].second == 1); // when the token is read
    folder.write("bad.yaml", "models: " + tiny + "\nlengths: 4\nsync: [lazy, soon]\n");
    const ProcessResult bad = run_in(here, {"bench", "matrix", "bad.yaml"});
    INFO(bad.err);
    CHECK(bad.code == 2);
    CHECK(contains(bad.err, "bad.yaml:3:14:"));
}

TEST_CASE("keel bench matrix measures, resumes, and keel bench report shows it") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    folder.write("m.yaml",
                 "models: " + tiny +
                     "\nkv: [f16, q8_0]\nlengths: 8\ndecode: 2\nrepeat: 1\nprobe_mib: 0\n"
                     "policies: [none, {plugin: sliding_window, set: {policy.budget.tokens: 64}}]\n");
    const ProcessResult dry = run_in(here, {"bench", "matrix", "m.yaml", "--dry-run"});
    INFO(dry.out << dry.err);
    CHECK(dry.code == 0);
    CHECK(std::count(dry.out.begin(), dry.out.end(), '\n') == 4);
    const ProcessResult first = run_in(here, {"bench", "matrix", "m.yaml", "-o", "out"});
    INFO(first.out << first.err);
    REQUIRE(first.code == 0);
    CHECK(contains(first.out, "4 measured, 0 done before, 0 failed"));
    size_t files = 0;
    std::filesystem::path one;
    for (const auto &entry : std::filesystem::directory_iterator(folder / "out")) {
        ++files;
        one = entry.path();
    }
    REQUIRE(files == 4);
    const auto json = read_json(one);
    CHECK(json.at("format") == "keel-bench-run/1");
    CHECK(json.at("axes").at("length") == 8);
    CHECK(json.at("command").at(1) == "bench");
    CHECK(json.at("result").at("decode").at(0).at("depth") == 8);
    CHECK(json.at("result").at("peak_resident_bytes") > 1000000);
    CHECK(json.contains("commit"));
    std::filesystem::remove(one);
    const ProcessResult second = run_in(here, {"bench", "matrix", "m.yaml", "-o", "out"});
    CHECK(contains(second.out, "1 measured, 3 done before, 0 failed"));

    const ProcessResult report = run_in(here, {"bench", "report", "out", "-o", "report.html"});
    INFO(report.err);
    CHECK(report.code == 0);
    CHECK(contains(read_text(folder / "report.html"), "sliding_window"));
    CHECK(run_in(here, {"bench", "report", "out", "-o", "report.html"}).code == 0);
    folder.write("long.yaml", "models: " + tiny + "\nlengths: 640\nset: {model.context: 256}\n");
    const ProcessResult too_long = run_in(here, {"bench", "matrix", "long.yaml", "-o", "none"});
    CHECK(too_long.code == 2);
    CHECK(contains(too_long.err, "do not fit model.context = 256"));
    folder.write("mine.html", "my <b>thesis");
    CHECK(run_in(here, {"bench", "report", "out", "-o", "mine.html"}).code == 2);
    CHECK(read_text(folder / "mine.html") == "my <b>thesis");
    CHECK(run_in(here, {"bench", "report", "out", "-o", "m.yaml"}).code == 2); // never over something else
    CHECK(run_in(here, {"bench", "report", "nothing", "-o", "r.html"}).code == 2);

    folder.write("bad.yaml", "models: " + tiny + "\nlengths: 8\nset: {model.contxt: 9}\n");
    const ProcessResult bad = run_in(here, {"bench", "matrix", "bad.yaml"});
    CHECK(bad.code == 2);
    CHECK(contains(bad.err, "bad.yaml:3:"));
    CHECK(contains(bad.err, "contxt"));
    CHECK_FALSE(std::filesystem::exists(folder / "bench-results"));
    const ProcessResult stray = run_in(here, {"bench", "--repeat", "5", "matrix", "m.yaml"});
    INFO(stray.err);
    CHECK(stray.code == 2);
    CHECK(run_in(here, {"bench"}).code == 2);
}

TEST_CASE("keel replay-op repeats what keel compare saved") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    const ProcessResult compare = run_in(here, {"compare", tiny, "--backend", KEEL_WRONG_BACKEND, "--against",
                                                "reference", "--tokens", "4", "--steps", "1"});
    CHECK(compare.code == 1);
    const ProcessResult good = run_in(here, {"replay-op", "keel-compare"});
    INFO(good.out << good.err);
    CHECK(good.code == 0);
    CHECK(contains(good.out, "within"));
    CHECK(contains(good.out, "what was saved had an error of"));
    const ProcessResult tight = run_in(
        here, {"replay-op", "keel-compare/op.json", "--param", "compute=exact", "--bound", "0", "--json"});
    INFO(tight.out << tight.err);
    CHECK(tight.code <= 1);
    CHECK(nlohmann::json::parse(tight.out).at("passed") == (tight.code == 0));
    CHECK(run_in(here, {"replay-op", "nothing"}).code == 2);
    CHECK(run_in(here, {"replay-op", "keel-compare", "--param", "compute=odd"}).code == 2);
    CHECK(run_in(here, {"replay-op", "keel-compare", "--param", "x"}).code == 2);
    CHECK(run_in(here, {"replay-op", heldout}).code == 2);
}

TEST_CASE("A trace is whole JSON, after an interruption and an error too") {
    const TempFolder folder;
    const std::string here = folder.path().string(), file = here + "/t.json";
    const ProcessResult bench = run_keel({"bench", tiny, "--prefill", "8", "--decode", "2", "--depth", "0",
                                          "-r", "1", "--probe-mib", "0", "--trace", file});
    INFO(bench.err);
    REQUIRE(bench.code == 0);
    CHECK(read_json(file).at("traceEvents").size() > 100);
    const ProcessResult kl = run_keel({"eval", "kl", tiny, "--against", tiny, "--text", heldout,
                                       "--max-tokens", "40", "--window", "32", "--trace", file});
    INFO(kl.err);
    REQUIRE(kl.code == 0);
    CHECK(read_json(file).at("traceEvents").size() > 100);
    ProcessOptions question;
    question.input = "Who are you?\n";
    const ProcessResult chat =
        run_keel({"chat", tiny, "--template", "chatml", "-n", "4", "--trace", file}, question);
    INFO(chat.err);
    REQUIRE(chat.code == 0);
    CHECK(read_json(file).at("traceEvents").size() > 100);
    // Killed while it works: the sooner the better, but on a busy machine it may not have begun.
    size_t events = 0;
    for (const int seconds : {2, 20}) {
        ProcessOptions kill;
        kill.timeout = std::chrono::seconds(seconds);
        const ProcessResult killed = run_keel({"bench", tiny, "--prefill", "0", "--decode", "1500", "--depth",
                                               "0", "-r", "1000", "--probe-mib", "0", "--trace", file},
                                              kill);
        CHECK(killed.timed_out);
        events = read_json(file).at("traceEvents").size();
        if (events > 100) break;
    }
    CHECK(events > 100);
    // The run fails: the cache is full.
    const ProcessResult failed = run_keel({"eval", "perplexity", tiny, "--text", heldout, "--set",
                                           "kv.max_mib=0.2", "--max-tokens", "600", "--trace", file});
    INFO(failed.err);
    CHECK(failed.code == 2);
    CHECK(read_json(file).contains("traceEvents"));
    CHECK(run_keel({"bench", tiny, "--trace", heldout}).code == 2);
    CHECK(run_keel({"bench", tiny, "--trace", here}).code == 2);
}
