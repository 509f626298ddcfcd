// Tests of the output folder of a run: which results a run may continue, and what it refuses before
// and while it runs.
#include "lab.hpp"
#include "plugin/registry.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <set>

using namespace keel;
using test::contains;
using test::error_text;
using test::Lab;

namespace {

namespace fs = std::filesystem;

const std::string one_document = "tasks: [{kind: passkey, lengths: [160], depths: 1, items: 1}]\n";

std::string text_of(const fs::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("a rebuilt plugin makes another experiment, and is named") {
    const Lab lab;
    const fs::path built = find_plugin("sliding_window", {}, default_plugin_folders()),
                   mine = lab.folder / "mine.so";
    fs::copy_file(built, mine);
    const std::string text = "arms: {full: {policy: none}, mine: {policy: {plugin: mine.so}}}\n"
                             "budgets: [{tokens: 48}]\n" +
                             one_document;
    const ab::Experiment before = lab.resolve(text);
    const auto records = lab.run(text, "out");
    CHECK(lab.run(text, "out") == records);
    fs::remove(mine); // a linker also writes a new file; the mapped old file stays valid
    fs::copy_file(built, mine);
    CHECK(lab.resolve(text).hash == before.hash);
    std::ofstream(mine, std::ios::app | std::ios::binary) << '\n';
    const ab::Experiment after = lab.resolve(text);
    CHECK(after.hash != before.hash);
    CHECK(after.experiment_hash == before.experiment_hash);
    const std::string found = error_text([&] { lab.run(text, "out"); });
    CHECK(contains(found, "another experiment's results"));
    CHECK(contains(found, "another build of policy sliding_window (mine.so)"));
    // Backends are also part of the comparison.
    const auto names = [](const ab::Experiment &e) {
        std::set<std::string> all;
        for (const auto &[name, file] : e.libraries) all.insert(name);
        return all;
    };
    CHECK(names(after) == std::set<std::string>{"backend cpu", "budget allocator uniform",
                                                "policy none", "policy sliding_window"});
}

TEST_CASE("a shard refuses a folder with another experiment's results before its first item") {
    const Lab lab;
    lab.run("arms: {full: {policy: none}}\n" + one_document, "out");
    const fs::path results = lab.folder / "out/results.jsonl";
    const std::string before = text_of(results),
                      other = "arms: {whole: {policy: none}}\n" + one_document;
    for (const bool resume : {true, false}) {
        ab::RunOptions shard;
        shard.shard = {1, 2};
        shard.resume = resume;
        CHECK(contains(error_text([&] { lab.run(other, "out", shard); }),
                       "another experiment's results"));
        CHECK(text_of(results) == before);
        CHECK_FALSE(fs::exists(lab.folder / "out/shard-1-of-2.jsonl"));
    }
}

TEST_CASE("a new start removes old results only after all checks, and only in a locked folder") {
    const Lab lab;
    const auto run = [&](const std::string &arms, ab::RunOptions options) {
        const ab::Experiment e = lab.resolve(arms + "budgets: [{tokens: 48}]\n" + one_document +
                                             "output: {directory: out, eviction_logs: true}\n");
        options.host = lab.host;
        ab::Runner runner(e, options);
        runner.run();
    };
    const std::string arms = "arms: {full: {policy: none}, window: {policy: sliding_window}}\n";
    run(arms, {});
    const fs::path log = lab.folder / "out/evictions-window-tokens-48-1.jsonl",
                   results = lab.folder / "out/results.jsonl";
    const std::string before = text_of(log), records = text_of(results);
    REQUIRE(before.size() > 100);
    ab::RunOptions anew;
    anew.resume = false;
    {
        const ab::FileLock other(lab.folder / "out/.results.jsonl.lock", false);
        CHECK(contains(error_text([&] { run(arms, anew); }, ErrorKind::usage),
                       "another process is writing"));
        CHECK(text_of(log) == before);
    }
    const std::string found = error_text([&] {
        run("arms: {full: {policy: none}, window: {policy: sliding_window}, "
            "small: {policy: none, kv: {max_mib: 0.375}}}\n",
            anew);
    });
    CHECK(contains(found, "arm 'small' at budget full, prompt with its answer of 192 tokens"));
    CHECK(text_of(log) == before);
    CHECK(text_of(results) == records);
    run(arms, anew);
    CHECK_FALSE(text_of(log).empty());
    for (const auto &entry : fs::directory_iterator(lab.folder / "out"))
        CHECK_FALSE(entry.path().filename().string().ends_with(".new"));
}

TEST_CASE("under kv.max_mib, each question of a document can use all of the memory") {
    const Lab lab;
    // 224 tokens and the longest answer fill four blocks of 64 slots in each of 6 layers and 2
    // heads, in f16.
    lab.run("arms: {full: {policy: none}, capped: {policy: none, kv: {max_mib: 0.75}}}\n"
            "protocol: [question_blind, query_aware]\n"
            "tasks: [{kind: facts, lengths: [224], items: 2, questions: 3}]\n",
            "out");
    std::map<std::string, std::map<std::string, std::string>> answers;
    std::map<std::string, std::set<int64_t>> lengths;
    std::set<std::string> documents;
    for (const ab::Item &item : Lab::items(lab.folder / "out/results.jsonl")) {
        answers[item.arm][item.protocol + item.item] = item.answer;
        lengths[item.item].insert(item.length);
        documents.insert(item.document);
        CHECK(item.length <= 224); // the length for this question, not for the longest one
        CHECK(item.length > 200);
    }
    CHECK(documents.size() == 2);
    CHECK(answers["full"].size() > 2 * documents.size());
    CHECK(answers["capped"] == answers["full"]);
    for (const auto &[item, all] : lengths) CHECK(all.size() == 1);
    // If the cache cannot hold the longest document, the run is refused before it starts.
    CHECK(contains(
        error_text([&] {
            lab.run("arms: {full: {policy: none}, capped: {policy: none, kv: {max_mib: 0.5625}}}\n"
                    "tasks: [{kind: facts, lengths: [224], items: 1}]\n",
                    "small");
        }),
        "arm 'capped' at budget full, prompt with its answer of 256 tokens"));
    CHECK_FALSE(fs::exists(lab.folder / "small/results.jsonl"));
}

TEST_CASE("keys of an arm that experiments do not use are refused by name") {
    const Lab lab;
    const auto refusal = [&](const std::string &arm) {
        return error_text(
            [&] { lab.resolve("arms: {full: {}, a: {" + arm + "}}\n" + one_document); });
    };
    for (const auto &[arm, key] : std::vector<std::pair<std::string, std::string>>{
             {"generation: {pin: [a text]}", "generation.pin"},
             {"generation: {max_tokens: 5}", "generation.max_tokens"},
             {"sampling: {temperature: 0.5}", "sampling.temperature"},
             {"policy: {protect: {system_prompt: false}}", "policy.protect.system_prompt"}}) {
        const std::string found = refusal(arm);
        INFO(found);
        CHECK(contains(found, "ab.yaml:2:"));
        CHECK(contains(found, "arm 'a': '" + key + "' has no effect in an experiment"));
    }
    // A key with the same value as in the base is not a setting of the arm.
    lab.resolve("arms: {full: {}, a: {policy: {protect: {system_prompt: true}}}}\n" + one_document);
    ab::ResolveOptions options;
    options.host = lab.host;
    options.sets = {"sampling.temperature=0.5"};
    CHECK(contains(error_text([&] {
                       ab::resolve_experiment(ab::load_config(lab.folder / "ab.yaml"), options);
                   }),
                   "--set sampling.temperature: 'sampling' has no effect"));
    options.sets = {"policy.protect.system_prompt=false"};
    CHECK(contains(error_text([&] {
                       ab::resolve_experiment(ab::load_config(lab.folder / "ab.yaml"), options);
                   }),
                   "'policy.protect.system_prompt' has no effect"));
    // A pin in the base must also be kept.
    lab.folder.write("base.yaml", "model: {path: " + test::tiny +
                                      "}\ngeneration: {pin: [a text]}\nbackend: {plugin: cpu}\n");
    CHECK(contains(refusal(""), "base.yaml:2:"));
}
