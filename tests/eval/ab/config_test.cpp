#include "eval/ab/plan/config.hpp"
#include "eval/ab/run/shard.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <map>

using namespace keel;
using test::contains;
using test::error_text;

namespace {

constexpr const char *full = R"(title: sinks against snapkv
base: pipeline.yaml
arms:
  full: {policy: none}
  window: {policy: {plugin: sliding_window, protect: {prefix: 4}}}
  q4cache: {kv: q4_0}
  same:
reference: full
budgets: [{tokens: 128}, {ratio: 0.25}, {mib: 1.5}]
protocol: [question_blind, query_aware]
tasks:
  - {kind: continuation, text: ../texts/held_out.txt, prefix: 1024, score: 256, documents: 50}
  - {kind: passkey, lengths: [512, 1024, 1900], depths: 10, items: 20}
  - {kind: facts, name: boxes, lengths: 512, items: 100, questions: 2}
  - {kind: jsonl, path: my_task.jsonl, metric: f1, prompt: "{context} Q: {input} A:"}
  - {kind: speed, depths: [0, 512, 1536], repeats: 5}
seeds: [1, 2, 3]
statistics: {confidence: 0.9, resamples: 2000, primary: passkey/hit,
  margins: {hit: 2 points, nll: 0.5 nats, kld: 10%}}
contrasts: [[window, q4cache]]
output: {directory: ../out, eviction_logs: true, maps: 3}
)";

std::string refusal(const std::string &text) {
    return error_text([&] { ab::parse_config(text, "ab.yaml", "/folder"); });
}

// Returns `full` with one piece replaced.
std::string with(const std::string &from, const std::string &to) {
    std::string text = full;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("an experiment file is read completely") {
    const ab::Config c = ab::parse_config(full, "ab.yaml", "/folder");
    CHECK(c.title == "sinks against snapkv");
    CHECK(c.base == "/folder/pipeline.yaml");
    REQUIRE(c.arms.size() == 4);
    CHECK(c.arms[1].name == "window");
    CHECK(c.arms[1].overrides.is_map());
    CHECK(c.arms[3].overrides.is_null());
    CHECK(c.reference == "full");
    REQUIRE(c.budgets.size() == 3);
    CHECK(c.budgets[0].label() == "tokens:128");
    CHECK(c.budgets[1].label() == "ratio:0.25");
    CHECK(c.budgets[2].label() == "mib:1.5");
    CHECK(c.protocols == std::vector{ab::Protocol::question_blind, ab::Protocol::query_aware});
    REQUIRE(c.tasks.size() == 5);
    CHECK(c.tasks[0].name == "continuation");
    CHECK(c.tasks[0].text == "/texts/held_out.txt");
    CHECK(c.tasks[0].prefix == 1024);
    CHECK(c.tasks[1].lengths == std::vector<int64_t>{512, 1024, 1900});
    CHECK(c.tasks[1].depths == 10);
    CHECK(c.tasks[2].name == "boxes");
    // a single length is a list with one element
    CHECK(c.tasks[2].lengths == std::vector<int64_t>{512});
    CHECK(c.tasks[2].questions == 2);
    CHECK(c.tasks[3].metric == ab::AnswerMetric::f1);
    CHECK(c.tasks[4].at == std::vector<int64_t>{0, 512, 1536});
    CHECK(c.seeds == std::vector<uint64_t>{1, 2, 3});
    CHECK(c.statistics.confidence == 0.9);
    CHECK(c.statistics.primary == "passkey/hit");
    CHECK(c.statistics.margins == ab::Margins{{"hit", 0.02}, {"kld", 0.1}, {"nll", 0.5}});
    CHECK(c.contrasts == std::vector<ab::PlannedContrast>{{"window", "q4cache", ""}});
    CHECK(c.output == "/out");
    CHECK(c.eviction_logs);
    CHECK(c.maps == 3);
}

TEST_CASE("missing keys of an experiment have defaults") {
    const ab::Config c = ab::parse_config(
        "base: p.yaml\narms: {a: {}, b: {kv: q8_0}}\ntasks: {kind: passkey, lengths: 64}\n",
        "my.yaml", "/f");
    CHECK(c.reference == "a");
    CHECK(c.budgets.empty());
    CHECK(c.protocols == std::vector{ab::Protocol::question_blind});
    CHECK(c.seeds == std::vector<uint64_t>{1});
    CHECK(c.output.filename() == "my-results");
    // the first task that measures quality is the primary one
    CHECK(c.statistics.primary == "passkey/hit");
    CHECK(c.contrasts.empty());
    CHECK(c.chat.template_name == "auto");
    CHECK_FALSE(c.chat.system);
}

TEST_CASE("an experiment can set the chat template and the system prompt of its prompts") {
    const auto chat_of = [](const std::string &text) {
        return ab::parse_config("base: p.yaml\narms: {a: {}}\ntasks: {kind: passkey, lengths: "
                                "64}\n" +
                                    text,
                                "my.yaml", "/f")
            .chat;
    };
    CHECK(chat_of("chat: none\n").template_name == "none");
    const ab::Chat both = chat_of("chat: {template: chatml, system: Be brief.}\n");
    CHECK(both.template_name == "chatml");
    CHECK(both.system == "Be brief.");
    CHECK(chat_of("chat: {system: none}\n").system == ab::Chat::no_system);
}

TEST_CASE("errors in an experiment are reported with their place") {
    const std::map<std::string, std::pair<std::string, std::string>> wrong = {
        {"ab.yaml:8:1: unknown key 'refernce' in an experiment; did you mean 'reference'?",
         {"reference: full", "refernce: full"}},
        {"ab.yaml:8:12: expected the name of an arm, found 'ful'; did you mean 'full'?",
         {"reference: full", "reference: ful"}},
        {"expected a task's kind (continuation, passkey, facts, jsonl, speed), found 'passky'; did "
         "you mean "
         "'passkey'?",
         {"kind: passkey", "kind: passky"}},
        {"unknown key 'lenghts' in a task of kind passkey; did you mean 'lengths'?",
         {"lengths: [512, 1024, 1900]", "lenghts: [1], lengths: [2]"}},
        {"unknown key 'lenghts' in this task; did you mean 'lengths'?",
         {"lengths: [512, 1024, 1900]", "lenghts: [512, 1024, 1900]"}},
        {"unknown key 'knd' in a task; did you mean 'kind'?", {"kind: passkey", "knd: passkey"}},
        {"expected the key 'lengths' in this task, found none",
         {"lengths: [512, 1024, 1900], ", ""}},
        {"expected a length in tokens from 1 to", {"[512, 1024, 1900]", "[512, 0]"}},
        {"a length in tokens 512 twice", {"[512, 1024, 1900]", "[512, 512]"}},
        {"unknown key 'token' in a budget; did you mean 'tokens'?",
         {"{tokens: 128}", "{token: 128}"}},
        {"expected a ratio from 0.001 to 1, found '2'", {"ratio: 0.25", "ratio: 2"}},
        {"the budget tokens:128 is listed twice", {"{ratio: 0.25}", "{tokens: 128}"}},
        {"expected one of {tokens: N}", {"{ratio: 0.25}", "{ratio: 0.25, tokens: 3}"}},
        {"expected a protocol (question_blind, query_aware, whole_prompt), found 'blind'",
         {"query_aware", "blind"}},
        {"unknown key 'templat' in 'chat'; did you mean 'template'?",
         {"reference: full", "reference: full\nchat: {templat: none}"}},
        {"ab.yaml:9:24: 'chat.system' has no effect with 'template: none'",
         {"reference: full", "reference: full\nchat: {template: none, system: Be brief.}"}},
        {"two tasks have the name 'passkey'; give one of them another 'name'",
         {"name: boxes", "name: passkey"}},
        {"expected a task's name of letters", {"name: boxes", "name: 'a b'"}},
        {"expected an arm's name of letters", {"  window:", "  win#dow:"}},
        {"expected the name of a task (continuation, passkey, boxes, jsonl, speed), or "
         "TASK/METRIC, for "
         "'statistics.primary', found 'passkay/hit'; did you mean 'passkey'?",
         {"passkey/hit", "passkay/hit"}},
        {"expected a confidence from 0.5 to 0.9999", {"confidence: 0.9", "confidence: 95"}},
        {"statistics.resamples: 2000 are too few for intervals of 99.99%",
         {"confidence: 0.9,", "confidence: 0.9999,"}},
        {"expected two different arms, found 'window' twice",
         {"[window, q4cache]", "[window, window]"}},
        {"expected an arm, found 'none'", {"[window, q4cache]", "[window, none]"}},
        {"expected a metric of the task 'passkey' (hit) for 'statistics.primary', found "
         "'passkey/hot'; did you mean 'hit'?",
         {"passkey/hit", "passkey/hot"}},
        {"expected a metric of the task 'continuation' (nll, kld, top1) for 'contrasts', found "
         "'continuation/nil'",
         {"[window, q4cache]", "[window, q4cache, continuation/nil]"}},
        {"expected a margin of 'nll' in nats, such as '0.01 nats', found '0.5 points'",
         {"0.5 nats", "0.5 points"}},
        {"expected a margin of 'hit' in points, such as '1 point', found '0.02'",
         {"2 points", "0.02"}},
        {"expected a margin of 'kld' in %, such as '10%', found '100%'", {"10%", "100%"}},
        {"unknown key 'hits' in 'statistics.margins'; did you mean 'hit'?",
         {"{hit: 2", "{hits: 2"}},
        {"expected a rule for early looks",
         {"margins: {hit: 2 points, nll: 0.5 nats, kld: 10%}", "looks: pocock"}},
        {"unknown key 'margin' in 'statistics'; did you mean 'margins'?",
         {"margins: {hit: 2 points, nll: 0.5 nats, kld: 10%}", "margin: 0.01"}},
        {"or the word 'reference', found", {"[window, q4cache]", "[window]"}},
        {"expected a prompt with {context} and, after it, {input}",
         {"{context} Q: {input} A:", "{input} {context}"}},
        {"unknown key 'plots' in 'output'", {"maps: 3", "plots: 3"}},
        {"expected keys of a pipeline for the arm 'same', found 'none'",
         {"  same:", "  same: none"}},
        {"expected at least one seed", {"[1, 2, 3]", "[]"}},
        {"a seed 2 twice", {"[1, 2, 3]", "[1, 2, 2]"}},
        {"remove the quotes", {"repeats: 5", "repeats: '5'"}},
    };
    for (const auto &[message, change] : wrong) {
        const std::string found = refusal(with(change.first, change.second));
        INFO(found);
        CHECK(contains(found, message));
        CHECK(contains(found, "ab.yaml:"));
    }
    CHECK(contains(refusal(""), "expected an experiment"));
    CHECK(contains(refusal("base: p.yaml\n"), "expected the key 'arms'"));
    CHECK(contains(refusal("base: p.yaml\narms: {a: {}}\n"), "expected the key 'tasks'"));
}

TEST_CASE(
    "planned contrasts are pairs with an optional metric, or 'reference' for all its contrasts") {
    const auto contrasts = [](const std::string &list) {
        return ab::parse_config(with("contrasts: [[window, q4cache]]", "contrasts: " + list),
                                "ab.yaml", "/folder")
            .contrasts;
    };
    CHECK(contrasts("[[window, full, speed/ttft_ms], [q4cache, window]]") ==
          std::vector<ab::PlannedContrast>{{"window", "full", "speed/ttft_ms"},
                                           {"q4cache", "window", ""}});
    // If only a task is named, the contrast is on the task's main metric.
    CHECK(contrasts("[[window, full, continuation]]")[0].on == "continuation/nll");
    const auto all = contrasts("[reference, [q4cache, window]]");
    REQUIRE(all.size() > 2);
    for (size_t i = 0; i + 1 < all.size(); ++i) CHECK(all[i].b == "full");
    CHECK(all.back() == ab::PlannedContrast{"q4cache", "window", ""});
}

TEST_CASE("shards take each document once, and come from --shard or from mpirun") {
    const ab::Shard second = ab::parse_shard("2/3");
    CHECK(second.index == 2);
    CHECK(second.file_name() == "shard-2-of-3.jsonl");
    CHECK(ab::Shard{}.file_name() == "results.jsonl");
    for (uint64_t document = 0; document < 10; ++document) {
        int takers = 0;
        for (uint32_t i = 1; i <= 3; ++i) takers += ab::Shard{i, 3}.takes(document) ? 1 : 0;
        CHECK(takers == 1);
    }
    // The documents of two lengths alternate, so no shard gets all documents of one length.
    uint64_t first = 0, odd = 0;
    for (uint64_t document = 0; document < 100; ++document) {
        first += ab::Shard{1, 2}.takes(document) ? 1 : 0;
        odd += ab::Shard{1, 2}.takes(document) && document % 2 == 1 ? 1 : 0;
    }
    CHECK(first == 50);
    CHECK(odd > 10);
    CHECK(odd < 40);
    for (const char *wrong :
         {"", "2", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2", "1/99999999", "1 / 2"})
        CHECK(contains(error_text([&] { ab::parse_shard(wrong); }, ErrorKind::usage),
                       "expected I/N"));

    std::map<std::string, std::string> environment;
    const auto get = [&](const char *name) -> const char * {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
    };
    CHECK(!ab::shard_from_environment(get));
    environment = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
    CHECK(ab::shard_from_environment(get) == ab::Shard{2, 4});
    environment = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
    CHECK(ab::shard_from_environment(get) == ab::Shard{1, 2});
    environment["PMI_SIZE"] = "1";
    CHECK(!ab::shard_from_environment(get)); // without variables, there is no shard
    environment["PMI_RANK"] = "7";
    CHECK(contains(error_text([&] { ab::shard_from_environment(get); }, ErrorKind::usage),
                   "PMI_RANK=7"));
}

TEST_CASE("the shard that finishes last merges the results, whatever its number is") {
    const test::TempFolder folder;
    std::vector<std::filesystem::path> merged;
    const auto merge = [&](const std::vector<std::filesystem::path> &shards) { merged = shards; };
    CHECK_FALSE(ab::finish_shard(folder.path(), {2, 3}, "hash", merge));
    CHECK_FALSE(ab::finish_shard(folder.path(), {3, 3}, "hash", merge));
    folder.write("shard-1-of-3.done", "another experiment's\n");
    CHECK_FALSE(ab::finish_shard(folder.path(), {3, 3}, "hash", merge));
    CHECK(merged.empty());
    CHECK(ab::finish_shard(folder.path(), {1, 3}, "hash", merge));
    REQUIRE(merged.size() == 3);
    CHECK(merged[1] == folder / "shard-2-of-3.jsonl");
    // A shard that runs again is not complete any more. A shard that took fewer documents belongs
    // to another run.
    merged.clear();
    ab::reopen_shard(folder.path(), {2, 3});
    CHECK_FALSE(ab::finish_shard(folder.path(), {1, 3}, "hash", merge));
    CHECK_FALSE(ab::finish_shard(folder.path(), {2, 3}, "hash items 2", merge));
    CHECK(ab::finish_shard(folder.path(), {2, 3}, "hash", merge));
    CHECK(merged.size() == 3);
}

TEST_CASE("the shipped experiments write to the working directory, also if they are installed") {
    for (const std::string name : {"quick", "policies"}) {
        const ab::Config c =
            ab::load_config(std::string(KEEL_SOURCE_DIR) + "/configs/ab/" + name + ".yaml");
        CHECK(c.output == std::filesystem::current_path() / (name + "-results"));
    }
}
