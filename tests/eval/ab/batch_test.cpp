// Documents of an arm that take decode steps together. Each must have the same results as a
// document that runs alone.
#include "lab.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <map>

using namespace keel;
using test::contains;
using test::error_text;
using test::Lab;
using test::tiny;

namespace {

const std::string arms =
    "arms:\n"
    "  full: {policy: none}\n"
    "  window: {policy: {plugin: sliding_window, budget: {slack: 2}, trigger: {on: "
    "[prefill_end, budget]}}, budgets: [{tokens: 48}]}\n"
    "  snapkv: {policy: {plugin: snapkv, params: {window: 16}}}\n"
    "  h2o: {policy: {plugin: h2o, trigger: {on: [prefill_end, budget]}}}\n"
    "  blocks: {policy: {plugin: keydiff, trigger: {on: [prefill_end, budget]}}}\n"
    "  random: {policy: random}\n"
    "  kvzip: {policy: kvzip}\n"
    "  q8: {policy: none, kv: q8_0}\n"
    "reference: full\n"
    "budgets: [{tokens: 48}]\n"
    "seeds: [1, 2]\n";
const std::string few_arms =
    "arms: {full: {policy: none}, h2o: {policy: {plugin: h2o, trigger: {on: "
    "[prefill_end, budget]}}}, random: {policy: random}}\n"
    "budgets: [{tokens: 48}]\nseeds: [1, 2]\n";
const std::string tasks = "protocol: [question_blind, query_aware]\n"
                          "tasks:\n"
                          "  - {kind: passkey, lengths: [120, 160], depths: 2, items: 1}\n"
                          "  - {kind: facts, lengths: [200], items: 2, questions: 3}\n"
                          "  - {kind: continuation, text: " +
                          tiny + "/heldout.txt, prefix: 96, score: 10, documents: 5}\n";

void base_with(const Lab &lab, const std::string &weights, const std::string &compute) {
    lab.folder.write("base.yaml", "model: {path: " + tiny + ", context: 512, weights: " + weights +
                                      "}\n"
                                      "backend: {plugin: cpu, params: {threads: 1, compute: " +
                                      compute +
                                      "}}\n"
                                      "policy: {plugin: none, protect: {prefix: 4}, trigger: {on: "
                                      "[prefill_end]}}\n");
}

// For as few rows as in these batches, products with quantized weights are bitwise the same on
// `cpu`. With isa amx, products of twenty and more rows round differently.
void quantized_base(const Lab &lab) { base_with(lab, "q4_0", "fast"); }

// Returns the beginnings of the lines that only one of the two sets has.
std::string differing(const std::multiset<std::string> &a, const std::multiset<std::string> &b) {
    std::vector<std::string> lines;
    std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(),
                                  std::back_inserter(lines));
    std::string text =
        lines.empty() ? "" : fmt::format("{} of {}:\n", lines.size(), a.size() + b.size());
    for (size_t i = 0; i < std::min<size_t>(lines.size(), 6); ++i)
        text += lines[i].substr(0, 400) + "\n";
    return text;
}

std::string key_of(const ab::Item &item) {
    return fmt::format("{}|{}|{}|{}|{}|{}|{}", item.arm, item.budget, item.protocol, item.task,
                       item.seed, item.item, item.metric);
}

} // namespace

TEST_CASE(
    "documents in a batch give bitwise the same results as alone if the backend rounds the same") {
    const Lab lab;
    quantized_base(lab);
    const auto alone = lab.run(arms + tasks, "alone");
    CHECK(alone.size() > 300);
    for (const int batch : {3, 8}) {
        INFO(batch);
        const std::string name = fmt::format("batch{}", batch);
        const auto together = lab.run(arms + tasks + fmt::format("batch: {}\n", batch), name);
        // In batches, the second run of the reference takes whole batches, so it could have more
        // items. Here it covers all documents in any case.
        CHECK(differing(together, alone) == "");
        const ab::Header header = ab::read_header(lab.folder / (name + "/results.jsonl"));
        CHECK(header.batch == static_cast<uint32_t>(batch));
    }
    ab::RunOptions own;
    own.share_prefill = false;
    const auto by_themselves = lab.run(arms + tasks + "batch: 3\n", "own", own);
    CHECK(differing(Lab::without_peaks(by_themselves), Lab::without_peaks(alone)) == "");
}

TEST_CASE("documents in a batch give the same results as alone except for rounding") {
    const Lab lab;
    base_with(lab, "stored",
              "exact"); // `fast` may round products of several rows, which can change answers
    lab.run(arms + tasks, "alone");
    lab.run(arms + tasks + "batch: 4\n", "together");
    std::map<std::string, ab::Item> alone;
    for (ab::Item &item : Lab::items(lab.folder / "alone/results.jsonl"))
        alone[key_of(item)] = std::move(item);
    const std::vector<ab::Item> together = Lab::items(lab.folder / "together/results.jsonl");
    REQUIRE(together.size() == alone.size());
    for (const ab::Item &item : together) {
        INFO(key_of(item));
        REQUIRE(alone.contains(key_of(item)));
        const ab::Item &other = alone.at(key_of(item));
        CHECK(item.value == Approx(other.value).epsilon(5e-3).margin(5e-3));
        CHECK(item.answer == other.answer);
        CHECK(item.evictions == other.evictions);
        CHECK(item.kv_bytes == other.kv_bytes);
        CHECK(item.peak_kv_bytes == other.peak_kv_bytes);
        CHECK(item.policy_bytes == other.policy_bytes);
        CHECK(item.seen == other.seen);
        if (item.metric == "kld" && item.arm.starts_with("full")) CHECK(item.value == 0);
    }
}

TEST_CASE(
    "an interrupted run in batches continues to the same results, in one process or in shards") {
    const Lab lab; // the other documents of a batch may change the last bits of a result here
    const std::string text = few_arms + tasks + "batch: 3\n";
    const auto whole = lab.run(text, "whole");
    std::ifstream in(lab.folder / "whole/results.jsonl");
    const std::string all(std::istreambuf_iterator<char>(in), {});
    for (const double share : {0.1, 0.35, 0.6, 0.85}) {
        const std::string name = fmt::format("cut{}", static_cast<int>(100 * share));
        lab.folder.write(
            name + "/results.jsonl",
            all.substr(0, static_cast<size_t>(share * static_cast<double>(all.size()))));
        CHECK(differing(lab.run(text, name), whole) == "");
    }
    // The file has only half of the header.
    lab.folder.write("header/results.jsonl", all.substr(0, 20));
    CHECK(differing(lab.run(text, "header"), whole) == "");
    ab::RunOptions shard;
    std::multiset<std::string> parts;
    for (uint32_t i = 1; i <= 2; ++i) {
        shard.shard = {i, 2};
        parts.merge(lab.run(text, "shards", shard));
    }
    CHECK(differing(parts, whole) == "");
    // If --items cut a batch short, the whole batch is computed again.
    ab::RunOptions some;
    for (const int64_t items : {2, 4}) {
        some.items = items;
        lab.run(text, "some", some);
    }
    CHECK(differing(lab.run(text, "some"), whole) == "");
    // If a batch is complete, no part of it is computed again in another batch.
    some.items = 2;
    CHECK(contains(error_text([&] { lab.run(text, "some", some); }, ErrorKind::usage),
                   "expected a multiple of 3, or another --output"));
    some.items = 3;
    CHECK(differing(lab.run(text, "some", some), whole) == "");
}

TEST_CASE("a run with another batch does not continue old results") {
    const Lab lab;
    const std::string text =
        few_arms + "tasks: [{kind: passkey, lengths: [120], depths: 2, items: 1}]\n";
    lab.run(text + "batch: 2\n", "out");
    CHECK(contains(error_text([&] { lab.run(text, "out"); }),
                   "made with batch 2, but this experiment uses 1"));
    CHECK(contains(error_text([&] { lab.run(text + "batch: 4\n", "out"); }),
                   "made with batch 2, but this experiment uses 4"));
    // With batch: 1, an experiment has the same hash as without `batch`.
    CHECK(lab.resolve(text + "batch: 1\n").hash == lab.resolve(text).hash);
    CHECK(contains(lab.resolve(text + "batch: 2\n").resolved, "batch: 2\n"));
}

TEST_CASE("settings that a batch does not support are refused or reported") {
    const Lab lab;
    const std::string passkey = "tasks: [{kind: passkey, lengths: [120], depths: 1, items: 1}]\n";
    const auto refusal = [&](const std::string &text) {
        return error_text([&] { lab.resolve(text); });
    };
    for (const char *wrong : {"0", "-1", "257", "99999999999999999999", "two", "1.5", "[2]", "''"})
        CHECK(contains(refusal("arms: {full: {}}\nbatch: " + std::string(wrong) + "\n" + passkey),
                       "ab.yaml:3:8: expected "));
    std::string found =
        refusal("arms: {full: {}, capped: {kv: {max_mib: 4}}}\nbatch: 2\n" + passkey);

    CHECK(contains(found, "arm 'capped' at "));
    CHECK(contains(found,
                   "'kv.max_mib' limits the cache of one sequence, but 2 sequences run at once"));
    // No arm evicts while text is generated, and continuations read many tokens in one step. So a
    // batch has no effect.
    const std::string continuation =
        "{kind: continuation, text: " + tiny + "/heldout.txt, prefix: 96, score: 10, documents: 2}";
    const std::string speed = "{kind: speed, depths: [0], repeats: 1, decode: 4}";
    found = error_text([&] {
        lab.run("arms: {full: {}}\nbatch: 2\ntasks: [" + continuation + ", " + speed + "]\n",
                "out");
    });
    CHECK(contains(found, "ab.yaml: batch: expected a task that reads tokens one by one"));
    CHECK(contains(found, "'speed' measures one sequence; remove 'batch'"));
    std::vector<std::string> said;
    ab::RunOptions options;
    options.say = [&](const std::string &line) { said.push_back(line); };
    lab.run("arms: {full: {}}\nbatch: 2\ntasks: [" + continuation + ", " + passkey.substr(8),
            "mixed", options);
    REQUIRE_FALSE(said.empty());
    CHECK(contains(said.front(), "batch: 'continuation' reads many tokens in each step"));
}

TEST_CASE("the eviction logs of documents in a batch are the same as alone") {
    const Lab lab;
    quantized_base(lab);
    const auto logs = [&](const std::string &name, const std::string &batch) {
        const ab::Experiment e = lab.resolve(
            few_arms + tasks + batch + "output: {directory: " + name + ", eviction_logs: true}\n");
        ab::RunOptions options;
        options.host = lab.host;
        ab::Runner(e, options).run();
        // Returns the log lines of each sequence, without times.
        std::map<std::string, std::vector<std::string>> all;
        std::ifstream in(lab.folder / (name + "/evictions-h2o-tokens-48-1.jsonl"));
        for (std::string line; std::getline(in, line);) {
            std::string text = line;
            for (const std::string key : {"\"time\":", "\"seconds\":", "\"microseconds\":"}) {
                const size_t at = text.find(key);
                if (at != std::string::npos) text.erase(at, text.find(",\"", at) + 1 - at);
            }
            all[line.substr(0, line.find(','))].push_back(text);
        }
        return all;
    };
    const auto alone = logs("alone", "");
    CHECK(alone.size() > 10);
    CHECK(logs("together", "batch: 3\n") == alone);
}

TEST_CASE("the cost of a batch is counted in steps that documents take together") {
    const Lab lab;
    const auto rows = [&](uint32_t batch) {
        const std::string text =
            "arms: {full: {policy: none}, h2o: {policy: {plugin: h2o, trigger: {on: "
            "[prefill_end, budget]}}}}\nbudgets: [{tokens: 48}]\nbatch: " +
            std::to_string(batch) + "\ntasks:\n  - {kind: continuation, text: " + tiny +
            "/heldout.txt, prefix: 96, score: 12, documents: 11}\n"
            "  - {kind: facts, lengths: [200], items: 3, questions: 2}\n";
        const ab::Experiment e = lab.resolve(text);
        ab::RunOptions options;
        options.host = lab.host;
        options.cost_only = true;
        return ab::Runner(e, options).cost().rows;
    };
    const std::vector<ab::Cost::Row> one = rows(1), three = rows(3);
    REQUIRE(one.size() == 2);
    REQUIRE(three.size() == 2);
    const uint64_t each =
        one[0].decode_tokens / (11 * 2 + 8); // the last token is scored and not fed
    CHECK(each >= 12);
    CHECK(one[0].decode_tokens ==
          each * (11 * 2 + 8)); // the second run of the reference has eight documents
    CHECK(one[0].decode_steps == one[0].decode_tokens);
    // the second run of the reference has three whole batches
    CHECK(three[0].decode_tokens == each * (11 * 2 + 9));
    // The cost was measured for nine documents in three batches and is scaled to eleven documents.
    CHECK(three[0].decode_steps ==
          static_cast<uint64_t>(std::llround(each * 3.0 * 2 * 11 / 9 + each * 3.0)));
    CHECK(three[1].decode_tokens == one[1].decode_tokens);
    CHECK(three[1].decode_steps * 3 >= three[1].decode_tokens);
    CHECK(three[1].decode_steps < one[1].decode_steps);
    CHECK(one[1].prefill_tokens > 3 * 190 * 2); // tokens of prompts and questions
}
