#include "apps/keel_process.hpp"

#include "support/temp_folder.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

using namespace keel::test;

namespace {

const std::string prompt = "Once upon a time there was";

} // namespace

TEST_CASE("quantize writes a file that gives the folder's results, and prints the error of "
          "quantization") {
    const TempFolder folder;
    const std::string file = (folder / "tiny.gguf").string();
    const ProcessResult written = run_keel({"quantize", tiny, file, "--type", "q4_0"});
    INFO(written.err);
    REQUIRE(written.code == 0);
    CHECK(contains(written.out, "blk.5.ffn_down.weight"));
    CHECK(contains(written.out, "relative error of all values"));
    const auto text = [](const std::string &model) {
        return run_keel(
                   {"run", model, "-p", prompt, "--greedy", "-n", "12", "-q", "--weights", "q4_0"})
            .out;
    };
    CHECK_FALSE(text(file).empty());
    CHECK(text(file) == text(tiny));
    const ProcessResult inspected = run_keel({"inspect", file, "--verify"});
    CHECK(inspected.code == 0);
    CHECK(contains(inspected.out, "43 of Q4_0"));

    const ProcessResult again = run_keel({"quantize", tiny, file});
    CHECK(again.code == 2);
    CHECK(contains(again.err, "the file exists; give another name, or use --force to replace it"));
    const ProcessResult forced =
        run_keel({"quantize", tiny, file, "--force", "--json", "--type", "bf16"});
    CHECK(forced.code == 0);
    const auto json = nlohmann::json::parse(forced.out);
    CHECK(json.at("type") == "bf16");
    CHECK(json.at("relative") == 0);
    CHECK(json.at("tensors").size() == 56);
    CHECK(run_keel({"quantize", file, file, "--force"}).code == 2);
    CHECK(run_keel({"quantize", tiny, file, "--force", "--type", "q5_0"}).code == 2);
}

TEST_CASE("quantize can measure the perplexity of both models") {
    const TempFolder folder;
    std::string story;
    for (int i = 0; i < 30; ++i) // 500 tokens and more, which give windows of different lengths
        story +=
            "Once upon a time there was a king who had a daughter, and she went into the wood. ";
    const std::string text = folder.write("story.txt", story).string();
    const ProcessResult r =
        run_keel({"quantize", tiny, (folder / "t.gguf").string(), "--perplexity", text, "--json"});
    INFO(r.err);
    REQUIRE(r.code == 0);
    const auto perplexity = nlohmann::json::parse(r.out).at("perplexity");
    CHECK(perplexity.at("before") > 1);
    // The sum over tokens is compared, because the last window scores fewer tokens than the others.
    const double difference = perplexity.at("nats_difference");
    const double before = perplexity.at("before"), after = perplexity.at("after");
    CHECK(std::abs(difference - std::log(after / before)) < 1e-9);
    CHECK(std::abs(difference) < 0.1);
    CHECK(perplexity.at("nats_difference_error") > 0);
    CHECK(
        run_keel({"quantize", tiny, (folder / "u.gguf").string(), "--perplexity", "/none"}).code ==
        2);
}

TEST_CASE("a GGUF file can be used instead of a model folder") {
    const TempFolder folder;
    const std::string file = (folder / "m.gguf").string();
    REQUIRE(run_keel({"quantize", tiny, file}).code == 0);
    const ProcessResult init =
        run_keel({"config", "init", "m.gguf", "-o", "my.yaml"}, {.folder = folder.path().string()});
    INFO(init.err);
    REQUIRE(init.code == 0);
    const ProcessResult checked = run_keel({"config", "check", (folder / "my.yaml").string()});
    CHECK(checked.code == 0);
    CHECK(run_keel({"run", (folder / "my.yaml").string(), "-p", prompt, "-n", "3"}).code == 0);
    CHECK(run_keel({"tokenize", file, prompt}).out == run_keel({"tokenize", tiny, prompt}).out);
    CHECK(run_keel({"compare", file, "--against", "reference", "--tokens", "4", "--steps", "1"})
              .code == 0);
}
