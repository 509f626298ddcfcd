#include "support/contains.hpp"
#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace keel::test;

namespace {

const std::string tiny = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

ProcessResult run_keel(std::vector<std::string> arguments, const std::string &folder = {}) {
    arguments.insert(arguments.begin(), std::string(KEEL_BINARY_DIR) + "/bin/keel");
    ProcessOptions options;
    options.folder = folder;
    return run_process(arguments, options);
}

} // namespace

TEST_CASE("keel bench prints a table, or an object with every sample") {
    const std::vector<std::string> small{"--prefill", "8,16,8", "--decode", "3",           "--depth",
                                         "0,5,0",     "-r",     "2",        "--probe-mib", "4"};
    std::vector<std::string> arguments{"bench", tiny};
    arguments.insert(arguments.end(), small.begin(), small.end());
    const ProcessResult table = run_keel(arguments);
    INFO(table.out << table.err);
    REQUIRE(table.code == 0);
    for (const char *part : {"keel ", "machine: ", "backend: cpu", "8 tokens", "16 tokens", "3 tokens at 0",
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
    const ProcessResult r = run_keel({"bench", std::string(KEEL_SOURCE_DIR) + "/tests/golden/mini_plain",
                                      "--prefill", "4", "--decode", "0", "-r", "1", "--probe-mib", "0"});
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    CHECK(contains(r.out, "4 tokens"));
}

TEST_CASE("keel bench refuses what makes no sense with one line") {
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

TEST_CASE("keel bench and keel compare refuse options that only change what is written") {
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
        for (std::vector<std::string> arguments :
             {std::vector<std::string>{"bench", tiny}, {"compare", tiny, "--against", "reference"}}) {
            const std::string command = arguments.front();
            arguments.insert(arguments.end(), given.begin(), given.end());
            const ProcessResult r = run_keel(arguments);
            INFO(command << " " << given[0] << "\n" << r.out << r.err);
            CHECK(r.code == 2);
            CHECK(r.out.empty());
            CHECK(r.err == "keel: error: unknown option '" + given[0] + "'; 'keel run' has it; see 'keel " +
                               command + " --help'\n");
        }
    }
}

TEST_CASE("keel compare ends with 0 within bounds, and with 1 and the op's inputs beyond") {
    const TempFolder folder;
    const std::string here = folder.path().string();
    const ProcessResult good =
        run_keel({"compare", tiny, "--against", "reference", "--tokens", "4", "--steps", "1"}, here);
    INFO(good.out << good.err);
    CHECK(good.code == 0);
    CHECK(contains(good.out, "every op is within its bound"));
    CHECK(std::filesystem::is_empty(folder.path()));

    const ProcessResult bad = run_keel({"compare", tiny, "--backend", KEEL_WRONG_BACKEND, "--against",
                                        "reference", "--prompt", "Once upon a time", "--steps", "2"},
                                       here);
    INFO(bad.out << bad.err);
    CHECK(bad.code == 1);
    CHECK(contains(bad.out, "BEYOND ITS BOUND"));
    CHECK(contains(bad.out, "decode layer 3: down (matmul)"));
    CHECK(std::filesystem::exists(folder / "keel-compare" / "op.json"));

    // Against a fast backend the bound of the products is wider than this error: exact finds it.
    const ProcessResult json =
        run_keel({"compare", tiny, "--backend", KEEL_WRONG_BACKEND, "--against", tiny, "--against-set",
                  "backend.params.compute=exact", "--steps", "1", "--json", "--save", here + "/mine"},
                 here);
    INFO(json.out << json.err);
    CHECK(json.code == 1);
    const auto object = nlohmann::json::parse(json.out);
    CHECK(object.at("passed") == false);
    CHECK(object.at("finding").at("layer") == 3);
    CHECK(object.at("finding").at("saved") == here + "/mine");
    CHECK(object.at("rows").size() >= 12);

    const ProcessResult again =
        run_keel({"compare", tiny, "--against", "reference", "--save", here + "/mine"}, here);
    CHECK(again.code == 2);
    CHECK(contains(again.err, "something is there already"));
    CHECK(run_keel({"compare", tiny}, here).code == 2);
    CHECK(run_keel({"compare", tiny, "--against", "nothing.yaml"}, here).code == 2);
    CHECK(run_keel({"compare", tiny, "--against", "reference", "--against-set", "kv.dtype=f32"}, here).code ==
          2);
    for (const std::vector<std::string> &wrong : std::vector<std::vector<std::string>>{
             {"--bound", "nan"},
             {"--prompt", ""},
             {"--policy", "random", "--budget", "40", "--against-set", "policy.plugin=random",
              "--against-set", "policy.budget.tokens=40", "--against-set", "policy.params.seed=4"}}) {
        std::vector<std::string> arguments{"compare", tiny, "--against", tiny, "--no-save", "--steps", "2"};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        const ProcessResult refused = run_keel(arguments, here);
        INFO(wrong[0] << " " << refused.out << refused.err);
        CHECK(refused.code == 2);
        CHECK(contains(refused.err, wrong.size() == 2 ? wrong[0] + ": " : "policy.params.seed is "));
    }
    for (const char *set : {"kv.dtype=f99", "kv.dtype"}) {
        const ProcessResult wrong =
            run_keel({"compare", tiny, "--against", tiny, "--against-set", set}, here);
        INFO(wrong.err);
        CHECK(wrong.code == 2);
        CHECK(contains(wrong.err, "--against-set kv.dtype: "));
    }
}
