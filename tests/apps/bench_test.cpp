// Tests of keel bench and keel bench matrix that run the program.
#include "apps/keel_process.hpp"

#include <algorithm>
#include <map>

using namespace keel::test;

TEST_CASE("keel bench prints a table, or a JSON object with every sample") {
    const std::vector<std::string> small{
        "--prefill", "8,16,8", "--decode", "3", "--depth", "0,5,0", "-r", "2", "--probe-mib", "4"};
    std::vector<std::string> arguments{"bench", tiny};
    arguments.insert(arguments.end(), small.begin(), small.end());
    const ProcessResult table = run_keel(arguments);
    INFO(table.out << table.err);
    REQUIRE(table.code == 0);
    for (const char *part :
         {"keel ", "machine: ", "backend: cpu", "8 tokens", "16 tokens", "3 tokens at 0",
          "3 tokens at 5", "limits of this machine", "f32 multiply-add"})
        CHECK(contains(table.out, part));
    arguments.emplace_back("--json");
    const ProcessResult object = run_keel(arguments);
    INFO(object.err);
    REQUIRE(object.code == 0);
    const auto json = nlohmann::json::parse(object.out);
    CHECK(json.at("prefill").size() == 2);
    CHECK(json.at("decode").size() == 2);
    CHECK(json.at("decode").at(1).at("depth") == 5);
    CHECK(json.at("decode").at(0).at("tokens_per_second").at("samples").size() == 2);
    CHECK(json.at("probe").at("buffer_bytes") > 0);
    CHECK(json.at("machine").at("processors") > 0);
}

TEST_CASE("keel bench needs no tokenizer") {
    const ProcessResult r =
        run_keel({"bench", std::string(KEEL_SOURCE_DIR) + "/tests/golden/mini_plain", "--prefill",
                  "4", "--decode", "0", "-r", "1", "--probe-mib", "0"});
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    CHECK(contains(r.out, "4 tokens"));
}

TEST_CASE("keel bench refuses wrong requests with one line") {
    for (const std::vector<std::string> &wrong :
         std::vector<std::vector<std::string>>{{"--prefill", "5000"},
                                               {"--prefill", "-3"},
                                               {"--prefill", "x"},
                                               {"--repeat", "0"},
                                               {"--depth", "4000"},
                                               {"--decode", "-1"},
                                               {"--prefill", "0", "--decode", "0"},
                                               {"--probe-mib", "-2"}}) {
        std::vector<std::string> arguments{"bench", tiny};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        const ProcessResult r = run_keel(arguments);
        INFO(wrong[0] << " " << wrong[1] << "\n" << r.out << r.err);
        CHECK(r.code == 2);
        CHECK(r.out.empty());
        CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
        const bool names_option = wrong.size() == 2 && !contains(r.err, "needs a context of");
        if (names_option) CHECK(contains(r.err, wrong[0] + ": "));
    }
}

TEST_CASE("keel bench and keel compare refuse options that change only the generated text") {
    for (const std::vector<std::string> &given :
         std::vector<std::vector<std::string>>{{"--temperature", "1"},
                                               {"--greedy"},
                                               {"-n", "5"},
                                               {"--max-tokens", "5"},
                                               {"--top-k", "3"},
                                               {"--top-p", "0.5"},
                                               {"--min-p", "0.1"},
                                               {"--repetition-penalty", "1.1"},
                                               {"--seed", "7"}}) {
        for (std::vector<std::string> arguments : {std::vector<std::string>{"bench", tiny},
                                                   {"compare", tiny, "--against", "reference"}}) {
            const std::string command = arguments.front();
            arguments.insert(arguments.end(), given.begin(), given.end());
            const ProcessResult r = run_keel(arguments);
            INFO(command << " " << given[0] << "\n" << r.out << r.err);
            CHECK(r.code == 2);
            CHECK(r.out.empty());
            CHECK(r.err == "keel: error: unknown option '" + given[0] +
                               "'; 'keel run' has this option; see 'keel " + command +
                               " --help'\n");
        }
    }
}

TEST_CASE("keel bench matrix measures several sequences at once, and one sequence") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    folder.write("m.yaml", "models: " + tiny +
                               "\nlengths: 8\ndecode: 2\nrepeat: 1\nprobe_mib: 0\nbatch: [1, 3]\n");
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
    folder.write("capped.yaml",
                 "models: " + tiny + "\nlengths: 8\nbatch: 2\nset: {kv.max_mib: 4}\n");
    const ProcessResult refused = run_in(here, {"bench", "matrix", "capped.yaml"});
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, "capped.yaml:4:"));
    CHECK(contains(refused.err, "limits the cache of one sequence"));
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
    CHECK(found["eager"].second > 10); // there is a wait after each op
    CHECK(found["b10"].first == "batched: 10");
    CHECK(found["b10"].second == 1); // the only wait is for the token
    folder.write("bad.yaml", "models: " + tiny + "\nlengths: 4\nsync: [lazy, soon]\n");
    const ProcessResult bad = run_in(here, {"bench", "matrix", "bad.yaml"});
    INFO(bad.err);
    CHECK(bad.code == 2);
    CHECK(contains(bad.err, "bad.yaml:3:14:"));
}

TEST_CASE("keel bench matrix measures and resumes, and keel bench report shows the results") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    folder.write(
        "m.yaml",
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
    CHECK(contains(first.out, "4 measured, 0 already measured before, 0 failed"));
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
    CHECK(contains(second.out, "1 measured, 3 already measured before, 0 failed"));

    const ProcessResult report = run_in(here, {"bench", "report", "out", "-o", "report.html"});
    INFO(report.err);
    CHECK(report.code == 0);
    CHECK(contains(read_file(folder / "report.html"), "sliding_window"));
    CHECK(run_in(here, {"bench", "report", "out", "-o", "report.html"}).code == 0);
    folder.write("long.yaml", "models: " + tiny + "\nlengths: 640\nset: {model.context: 256}\n");
    const ProcessResult too_long = run_in(here, {"bench", "matrix", "long.yaml", "-o", "none"});
    CHECK(too_long.code == 2);
    CHECK(contains(too_long.err, "do not fit model.context = 256"));
    folder.write("mine.html", "my <b>thesis");
    CHECK(run_in(here, {"bench", "report", "out", "-o", "mine.html"}).code == 2);
    CHECK(read_file(folder / "mine.html") == "my <b>thesis");
    CHECK(run_in(here, {"bench", "report", "out", "-o", "m.yaml"}).code ==
          2); // a file that keel did not write is never overwritten
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
