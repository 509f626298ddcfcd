#include "lab.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <set>

using namespace keel;
using test::contains;
using test::error_text;
using test::Lab;
using test::tiny;

namespace {

const std::string recall = "protocol: [question_blind, query_aware]\n"
                           "tasks:\n"
                           "  - {kind: passkey, lengths: [160], depths: 2, items: 1}\n"
                           "  - {kind: facts, lengths: [200], items: 1}\n"
                           "  - {kind: continuation, text: " +
                           tiny + "/heldout.txt, prefix: 96, score: 12, documents: 2}\n";

} // namespace

TEST_CASE("arms are merged with the base, and budgets apply to arms that evict") {
    const Lab lab;
    const ab::Experiment e =
        lab.resolve("arms:\n"
                    "  window: {policy: {plugin: sliding_window, protect: {recent: 2}}}\n"
                    "  full: {policy: none}\n"
                    "  random: {policy: random}\n"
                    "  fixed: {policy: {plugin: sliding_window, budget: {tokens: 40}}}\n"
                    "  sweep: {policy: sliding_window, budgets: [{tokens: 32}, {mib: 0.5}]}\n"
                    "  q8: {kv: q8_0}\n"
                    "reference: full\n"
                    "budgets: [{tokens: 64}, {ratio: 0.5}]\n"
                    "tasks: [{kind: passkey, lengths: [160]}]\n"
                    "seeds: [3, 4]\n");
    std::vector<std::string> names;
    for (const ab::Run &run : e.runs) names.push_back(run.arm + " " + run.budget);
    CHECK(names == std::vector<std::string>{"full full", "window tokens:64", "window ratio:0.5",
                                            "random tokens:64", "random ratio:0.5",
                                            "fixed tokens:40", "sweep tokens:32", "sweep mib:0.5",
                                            "q8 full", "full#again full"});
    CHECK(e.reference().keeps_all);
    CHECK(*e.runs[1].config.policy.protect.prefix == 4); // the value comes from the base
    CHECK(*e.runs[1].config.policy.protect.recent == 2);
    CHECK(e.runs[1].config.policy.budget.tokens->value() == 64);
    CHECK_FALSE(e.runs[2].config.policy.budget.tokens->has_value());
    // this arm has nothing random, so it has only one seed
    CHECK(e.runs[1].seeds == std::vector<uint64_t>{3});
    CHECK(e.runs[3].seeds == std::vector<uint64_t>{3, 4});
    CHECK(e.differences[5] == "kv.dtype: q8_0");
    // If the resolved file is read back, it is the same experiment.
    ab::ResolveOptions options;
    options.circumstances = "test";
    options.host = lab.host;
    const ab::Experiment again = ab::resolve_experiment(
        ab::load_config(lab.folder.write("elsewhere/resolved.yaml", e.resolved)), options);
    CHECK(again.hash == e.hash);
    CHECK(again.config.output == e.config.output);
    // Statistics do not change the results of a run. Seeds and texts do.
    options.sets = {"kv.dtype=f32"};
    CHECK(ab::resolve_experiment(ab::load_config(lab.folder / "ab.yaml"), options).hash != e.hash);
}

TEST_CASE("impossible arms are refused before anything runs") {
    const Lab lab;
    const std::string tasks = "tasks: [{kind: passkey, lengths: [160]}]\n";
    const auto refusal = [&](const std::string &text) {
        return error_text([&] { lab.resolve(text + tasks); });
    };
    std::string found = refusal("arms: {full: {}, a: {polcy: random}}\n");
    CHECK(
        contains(found, "ab.yaml:2:22: unknown key 'polcy' in a pipeline; did you mean 'policy'?"));
    found =
        refusal("arms: {full: {}, a: {policy: {plugin: sliding_window, params: {widnow: 3}}}}\n");
    CHECK(contains(found, "did you mean 'window'?"));
    CHECK(contains(found, "ab.yaml:2:"));
    CHECK(contains(refusal("arms: {a: {policy: {plugin: sliding_window, budget: {tokens: 64}}}}\n"),
                   "the reference 'a' evicts"));
    CHECK(contains(refusal("arms: {full: {}, a: {policy: random}}\n"), "policy.budget"));
    CHECK(contains(refusal("arms: {full: {}, a: {policy: {plugin: random, log: "
                           "x.jsonl}}}\nbudgets: [{tokens: 64}]\n"),
                   "policy.log cannot be set in an experiment"));
    CHECK(contains(
        refusal("arms: {full: {}, a: {policy: {plugin: random}}}\nbudgets: [{tokens: 2}]\n"),
        "arm 'a' at budget tokens:2"));
    found = refusal("arms: {full: {}, a: {hybrid: {backends: {x: {plugin: cpu}, y: {plugin: "
                    "cpu}}, prefill: x, decode: y}}}\n");
    CHECK(contains(found, "ab.yaml:2:"));
    CHECK(contains(found, "arm 'a': an arm of an experiment needs a single backend"));
    lab.folder.write("ab.yaml", "base: nowhere.yaml\narms: {a: {}}\n" + tasks);
    CHECK(contains(
        error_text([&] { ab::resolve_experiment(ab::load_config(lab.folder / "ab.yaml"), {}); }),
        "nowhere.yaml: no such file"));
    // The full cache cannot hold these prompts.
    const ab::Experiment e =
        lab.resolve("arms: {full: {}}\ntasks: [{kind: passkey, lengths: [2000]}]\n");
    ab::RunOptions options;
    options.host = lab.host;
    CHECK(contains(error_text([&] { ab::Runner(e, options); }), "the full cache holds 512"));
}

TEST_CASE("arms that share a prefill give bitwise the same results as with their own prefill") {
    const Lab lab;
    const std::string text =
        "arms:\n"
        "  full: {policy: none}\n"
        "  window: {policy: sliding_window}\n"
        "  snapkv: {policy: {plugin: snapkv, params: {window: 16}}}\n"
        "  wide: {policy: {plugin: snapkv, params: {window: 24, kernel: 3, pool: max}}}\n"
        "  h2o: {policy: h2o}\n"
        "  keydiff: {policy: keydiff}\n"
        "  expected: {policy: expected_attention}\n"
        "  random: {policy: random}\n"
        "reference: full\n"
        "budgets: [{tokens: 48}]\n"
        "seeds: [1, 2]\n" +
        recall;
    ab::RunOptions alone;
    alone.share_prefill = false;
    const auto shared = lab.run(text, "shared"), own = lab.run(text, "own", alone);
    CHECK(shared.size() > 100);
    CHECK(Lab::without_peaks(shared) == Lab::without_peaks(own));
    CHECK(ab::read_header(lab.folder / "shared/results.jsonl").own_prefills.empty());
    CHECK(ab::read_header(lab.folder / "own/results.jsonl").own_prefills.size() == 8);
    // Each policy evicted something, and the policies differ.
    std::map<std::string, std::set<std::string>> nll;
    for (const ab::Item &item : Lab::items(lab.folder / "shared/results.jsonl")) {
        const bool keeps_all = item.arm.starts_with("full");
        CHECK((item.evictions > 0) == !keeps_all);
        CHECK(item.full_kv_bytes >= item.kv_bytes - item.policy_bytes);
        CHECK(item.peak_kv_bytes >= item.kv_bytes);
        // Sums and statistics stay for later tokens. Memory that only an eviction needs is freed
        // after it.
        const bool collects = item.arm == "h2o" || item.arm == "expected";
        CHECK((item.policy_bytes > 0) == collects);
        if (!keeps_all) CHECK(item.kept_slots < 80);
        if (item.metric == "nll" && item.seed == 1)
            nll[item.item].insert(fmt::format("{}", item.value));
        // the two runs are equal, so there is no noise
        if (item.metric == "kld" && keeps_all) CHECK(item.value == 0);
    }
    REQUIRE(nll.size() == 2);
    for (const auto &[document, values] : nll)
        CHECK(values.size() == 8); // the two runs of the reference are equal
}

TEST_CASE(
    "prompts in a chat template make another experiment, and the results say which template") {
    const Lab lab;
    const std::string text = "arms: {full: {policy: none}}\ntasks: [{kind: facts, lengths: [200], "
                             "items: 1, questions: 1}]\nprotocol: [query_aware, whole_prompt]\n";
    const auto header = [&](const std::string &chat, const std::string &output) {
        lab.run(text + chat, output);
        return ab::read_header(lab.folder / output / "results.jsonl");
    };
    const ab::Header plain = header("", "plain"), chat = header("chat: zephyr\n", "chat");
    const auto prompts = [](const ab::Header &h) {
        for (const auto &[name, fact] : h.facts)
            if (name == "prompts") return fact;
        return std::string();
    };
    CHECK(prompts(plain) == "plain text");
    CHECK(prompts(chat) == "chat template zephyr, no system prompt");
    CHECK(plain.experiment_hash != chat.experiment_hash);
    // An arm that keeps all tokens gives the same answers, wherever the protocol sets the end of
    // the prompt.
    std::map<std::string, std::set<std::string>> answers;
    for (const ab::Item &item : Lab::items(lab.folder / "chat/results.jsonl"))
        answers[item.item].insert(fmt::format("{} {}", item.answer, item.length));
    for (const auto &[item, found] : answers) CHECK(found.size() == 1);
    // If the resolved file is read back, it is the same experiment.
    const ab::Experiment e = lab.resolve(text + "chat: {template: zephyr, system: 'Be: brief'}\n");
    ab::ResolveOptions options;
    options.circumstances = "test";
    options.host = lab.host;
    CHECK(ab::resolve_experiment(
              ab::load_config(lab.folder.write("again/resolved.yaml", e.resolved)), options)
              .hash == e.hash);
}

TEST_CASE("policies that act between chunks or in decode act when the trigger says so") {
    const Lab lab;
    lab.base("on: [prefill_end, budget]");
    const std::string text =
        "arms: {full: {policy: none}, window: {policy: {plugin: sliding_window, budget: "
        "{tokens: 32, slack: 4}}}}\n"
        "tasks: [{kind: continuation, text: " +
        tiny + "/heldout.txt, prefix: 96, score: 24, documents: 1}]\n";
    lab.run(text, "out");
    for (const ab::Item &item : Lab::items(lab.folder / "out/results.jsonl")) {
        if (item.arm != "window") continue;
        CHECK(item.evictions > 2);
        CHECK(item.kept_slots <= 37);
    }
    lab.base("on: [prefill_end]");
    lab.run(text, "frozen");
    for (const ab::Item &item : Lab::items(lab.folder / "frozen/results.jsonl")) {
        if (item.arm == "window") CHECK(item.evictions == 1);
    }
}

TEST_CASE("an interrupted run continues to the same results, in one process or in shards") {
    const Lab lab;
    const std::string text = "arms: {full: {policy: none}, random: {policy: random}}\nbudgets: "
                             "[{tokens: 48}]\nseeds: [1, 2]\n" +
                             recall;
    const auto whole = lab.run(text, "whole");
    // The file is cut every few lines, in the middle of a line.
    std::ifstream in(lab.folder / "whole/results.jsonl");
    const std::string all(std::istreambuf_iterator<char>(in), {});
    for (const double share : {0.2, 0.5, 0.9}) {
        const std::string name = fmt::format("cut{}", static_cast<int>(10 * share));
        lab.folder.write(
            name + "/results.jsonl",
            all.substr(0, static_cast<size_t>(share * static_cast<double>(all.size()))));
        CHECK(lab.run(text, name) == whole);
    }
    ab::RunOptions shard;
    std::multiset<std::string> parts;
    for (uint32_t i = 1; i <= 2; ++i) {
        shard.shard = {i, 2};
        parts.merge(lab.run(text, "shards", shard));
    }
    CHECK(parts == whole);
    // A run with fewer items gives a part of the items.
    ab::RunOptions few;
    few.items = 1;
    const auto some = lab.run(text, "few", few);
    CHECK(some.size() < whole.size());
    CHECK(std::includes(whole.begin(), whole.end(), some.begin(), some.end()));
    CHECK(lab.run(text, "few") == whole);
    // Results of another experiment are not added to the file.
    const std::string other = text + "title: x\n";
    CHECK(lab.run(other, "few") == whole); // a title changes nothing
    CHECK(contains(error_text([&] { lab.run("arms: {full: {policy: none}}\n" + recall, "few"); }),
                   "another experiment"));
    ab::RunOptions again;
    again.resume = false;
    CHECK(lab.run("arms: {full: {policy: none}}\n" + recall, "few", again).size() < whole.size());
}

TEST_CASE("after Ctrl-C a run can be continued") {
    const Lab lab;
    const std::string text = "arms: {full: {policy: none}, window: {policy: "
                             "sliding_window}}\nbudgets: [{tokens: 48}]\n" +
                             recall;
    ab::RunOptions stopped;
    stopped.steps = [&](uint64_t done, uint64_t total, uint64_t found) {
        CHECK(done <= total);
        CHECK(found == 0);
        if (done >= 4) lab.host->request_cancel();
    };
    CHECK(contains(error_text([&] { lab.run(text, "out", stopped); }, ErrorKind::runtime),
                   "cancelled"));
    lab.host->clear_cancel();
    const size_t before = Lab::records(lab.folder / "out/results.jsonl").size();
    CHECK(before > 0);
    // results that existed before are not used to estimate the time of the rest
    ab::RunOptions again;
    uint64_t last_found = 0;
    again.steps = [&](uint64_t done, uint64_t, uint64_t found) {
        CHECK(found <= done);
        last_found = found;
    };
    CHECK(lab.run(text, "out", again) == lab.run(text, "whole"));
    CHECK(last_found >= 3);
}

TEST_CASE("the cost of an experiment is measured in every arm, and nothing is written") {
    const Lab lab;
    const ab::Experiment e = lab.resolve(
        "arms:\n  full: {policy: none}\n  random: {policy: random}\n  kvzip: {policy: kvzip}\n"
        "budgets: [{tokens: 48}]\nseeds: [1, 2]\nprotocol: [question_blind, query_aware]\n"
        "tasks:\n"
        "  - {kind: passkey, lengths: [128, 200], depths: 2, items: 5}\n"
        "  - {kind: continuation, text: " +
        tiny +
        "/heldout.txt, prefix: 96, score: 8, "
        "documents: 20}\n"
        "  - {kind: speed, depths: [32], repeats: 30, decode: 64}\n"
        "output: {directory: out, eviction_logs: true}\n");
    ab::RunOptions options;
    options.host = lab.host;
    options.cost_only = true;
    options.shard = {1, 2}; // the times of arms and tasks are those of this shard, like their sum
    const ab::Cost cost = ab::Runner(e, options).cost();
    CHECK_FALSE(fs::exists(lab.folder / "out"));
    REQUIRE(cost.rows.size() == 4);
    REQUIRE(cost.run_seconds.size() == 3); // the reference's time includes its second run
    double of_rows = 0, of_runs = 0;
    for (const ab::Cost::Row &row : cost.rows) {
        CHECK(row.seconds > 0);
        of_rows += row.seconds;
    }
    for (const double seconds : cost.run_seconds) {
        CHECK(seconds > 0);
        of_runs += seconds;
    }
    CHECK(cost.seconds == Approx(of_rows));
    CHECK(cost.seconds == Approx(of_runs));
    CHECK(cost.measured_seconds > 0);
    CHECK(cost.prefill_tokens > 1000);
}

TEST_CASE("two runs cannot write to the same folder at the same time") {
    const Lab lab;
    const std::string text = "arms: {full: {policy: none}}\ntasks: [{kind: passkey, lengths: "
                             "[160], depths: 1, items: 1}]\n";
    lab.run(text, "out");
    {
        const ab::FileLock other(lab.folder / "out/.results.jsonl.lock", false);
        CHECK(contains(error_text([&] { lab.run(text, "out"); }, ErrorKind::usage),
                       "another process is writing there"));
    }
    lab.run(text, "out");
}

TEST_CASE("speeds of arms are measured in turns") {
    const Lab lab;
    const std::string text =
        "arms: {full: {policy: none}, window: {policy: sliding_window}}\nbudgets: [{tokens: 48}]\n"
        "tasks: [{kind: speed, depths: [0, 64], repeats: 2, decode: 4}]\n";
    lab.run(text, "out");
    std::map<std::string, int> metrics;
    std::vector<std::string> order;
    for (const ab::Item &item : Lab::items(lab.folder / "out/results.jsonl")) {
        ++metrics[item.metric];
        CHECK(item.value > 0);
        if (item.metric == "ttft_ms" && item.length == 64) order.push_back(item.arm);
    }
    const int arms = 3; // the reference runs twice
    CHECK(metrics == std::map<std::string, int>{{"decode_ms_p50", 4 * arms},
                                                {"decode_ms_p99", 4 * arms},
                                                {"decode_tokens_per_second", 4 * arms},
                                                {"prefill_tokens_per_second", 2 * arms},
                                                {"ttft_ms", 4 * arms}});
    CHECK(order ==
          std::vector<std::string>{"full", "window", "full#again", "full#again", "window", "full"});
}
