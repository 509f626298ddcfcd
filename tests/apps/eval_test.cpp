// Tests of keel eval perplexity and keel eval kl that run the program.
#include "apps/keel_process.hpp"

#include <algorithm>

using namespace keel::test;

TEST_CASE(
    "keel eval perplexity prints a number with its error, or a JSON object with each window") {
    const ProcessResult text = run_keel(
        {"eval", "perplexity", tiny, "--text", heldout, "--max-tokens", "300", "--window", "100"});
    INFO(text.out << text.err);
    REQUIRE(text.code == 0);
    for (const char *part :
         {"300 of 300 tokens", "windows of up to 100", "perplexity", "+-", "nll"})
        CHECK(contains(text.out, part));
    const ProcessResult object =
        run_keel({"eval", "perplexity", tiny, "--text", heldout, "--max-tokens", "400", "--prefix",
                  "100", "--continuation", "20", "--places", "3", "--policy", "sliding_window",
                  "--budget", "32", "--json"});
    INFO(object.err);
    REQUIRE(object.code == 0);
    const auto json = nlohmann::json::parse(object.out);
    CHECK(json.at("scoring").at("mode") == "prefix");
    CHECK(json.at("windows").size() == 3);
    CHECK(json.at("tokens") == 60);
    CHECK(json.at("evictions") >= 3);
    const ProcessResult together =
        run_keel({"eval", "perplexity", tiny, "--text", heldout, "--max-tokens", "90", "--window",
                  "32", "--step", "1", "--batch", "3"});
    INFO(together.out << together.err);
    REQUIRE(together.code == 0);
    CHECK(contains(together.out, "tokens read per second, 3 together; cache and policy at most "));
    // If a context is given, it is the length of the window.
    const ProcessResult context = run_keel({"eval", "perplexity", tiny, "--text", heldout,
                                            "--max-tokens", "90", "-c", "64", "--json"});
    CHECK(nlohmann::json::parse(context.out).at("scoring").at("context") == 64);
}

TEST_CASE("keel eval kl compares a pipeline with a reference") {
    const ProcessResult r = run_keel({"eval", "kl", tiny, "--weights", "q4_0", "--against", tiny,
                                      "--text", heldout, "--max-tokens", "200"});
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    for (const char *part :
         {"KL(reference || this)", "median", "90%", "99%", "max", "same most likely token",
          "perplexity", "weights q4_0", "weights bf16"})
        CHECK(contains(r.out, part));
}

TEST_CASE("keel eval kl scores several places at once") {
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

TEST_CASE("keel eval refuses wrong requests with one line") {
    for (const std::vector<std::string> &wrong : std::vector<std::vector<std::string>>{
             {"eval"},
             {"eval", "perplexity", tiny},
             {"eval", "perplexity", tiny, "--text", "nothing.txt"},
             {"eval", "perplexity", tiny, "--text", heldout, "--stride", "0"},
             {"eval", "perplexity", tiny, "--text", heldout, "--prefix", "10"},
             {"eval", "perplexity", tiny, "--text", heldout, "--prefix", "10", "--continuation",
              "5", "--window", "9"},
             {"eval", "perplexity", tiny, "--text", heldout, "--window", "5000"},
             {"eval", "perplexity", tiny, "--text", heldout, "--batch",
              "2"}, // many tokens at a time
             {"eval", "perplexity", tiny, "--text", heldout, "--temperature", "1"},
             {"eval", "kl", tiny, "--text", heldout},
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--batch", "0"},
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--batch", "100000000000"},
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--batch",
              "2"}, // many tokens at a time
             {"eval", "kl", tiny, "--text", heldout, "--against", tiny, "--step", "1", "--batch",
              "2", "--against-set", "kv.max_mib=4"},
             {"eval", "kl", tiny, "--text", heldout, "--against",
              std::string(KEEL_SOURCE_DIR) + "/tests/golden/mini_plain"}}) {
        const ProcessResult r = run_keel(wrong);
        INFO(wrong.back() << "\n" << r.out << r.err);
        CHECK(r.code == 2);
        CHECK(r.out.empty());
        CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    }
}
