// Tests of the other output of a run: logs, bytes, warnings, and second runs of the reference.
#include "lab.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

using namespace keel;
using test::contains;
using test::error_text;
using test::Lab;
using test::tiny;
namespace fs = std::filesystem;

TEST_CASE(
    "each shard has one eviction log with all documents, and a continued run writes another part") {
    const Lab lab;
    const std::string text =
        "arms: {full: {policy: none}, window: {policy: sliding_window}, random: {policy: random}}\n"
        "budgets: [{tokens: 48}]\n"
        "tasks: [{kind: passkey, lengths: [160], depths: 1, items: 3}]\n"
        "output: {directory: out, eviction_logs: true}\n";
    const auto run = [&](ab::RunOptions options) {
        const ab::Experiment e = lab.resolve(text);
        options.host = lab.host;
        ab::Runner runner(e, options);
        runner.run();
    };
    // Each document is one sequence of the log.
    const auto sequences = [&](const std::string &name) {
        std::ifstream in(lab.folder / ("out/" + name));
        std::set<std::string> all;
        for (std::string line; std::getline(in, line);) all.insert(line.substr(0, line.find(',')));
        return all.size();
    };
    {
        const ab::Experiment e = lab.resolve(text);
        ab::RunOptions options;
        options.host = lab.host;
        options.cost_only = true;
        CHECK(ab::Runner(e, options).cost().prefill_tokens > 100);
    }
    ab::RunOptions two;
    two.items = 2;
    run(two);
    const std::string random = "evictions-random-tokens-48-1",
                      window = "evictions-window-tokens-48-1";
    CHECK(sequences(random + ".jsonl") == 2);
    CHECK(sequences(window + ".jsonl") == 2);
    run({});
    CHECK(sequences(random + ".jsonl") == 2); // the first log is unchanged
    CHECK(sequences(random + "-part-2.jsonl") == 1);
    run({});
    CHECK_FALSE(fs::exists(lab.folder / ("out/" + random + "-part-3.jsonl")));
    ab::RunOptions again;
    again.resume = false;
    run(again);
    CHECK(sequences(random + ".jsonl") == 3);
    CHECK_FALSE(fs::exists(lab.folder / ("out/" + random + "-part-2.jsonl")));
    ab::RunOptions shard;
    shard.shard = {2, 2};
    run(shard);
    CHECK(sequences(window + "-shard-2-of-2.jsonl") == 2);
    CHECK(sequences(window + ".jsonl") == 3);
    CHECK(fs::exists(lab.folder / "out/resolved.yaml"));
}

TEST_CASE("bytes count copies of quantized keys, a replay and the policy's data") {
    const Lab lab;
    lab.run("arms:\n"
            "  full: {policy: none}\n"
            "  turned: {kv: q8_0, policy: {plugin: keydiff, positions: rerotated}}\n"
            "  snapkv: {policy: {plugin: snapkv, params: {window: 16}}}\n"
            "  kvzip: {policy: kvzip}\n"
            "  h2o: {policy: h2o}\n"
            "reference: full\n"
            "budgets: [{tokens: 64}]\n"
            "tasks: [{kind: continuation, text: " +
                tiny + "/heldout.txt, prefix: 160, score: 10, documents: 1}]\n",
            "out");
    std::map<std::string, ab::Item> items;
    std::map<std::string, ab::Timeline> lines;
    ab::read_records(lab.folder / "out/results.jsonl", [&](ab::Record &&record, uint64_t) {
        if (const auto *item = std::get_if<ab::Item>(&record);
            item != nullptr && item->metric == "nll")
            items[item->arm] = *item;
        if (const auto *line = std::get_if<ab::Timeline>(&record)) lines[line->arm] = *line;
    });
    REQUIRE(items.size() == 6);
    for (const auto &[arm, line] : lines) {
        INFO(arm);
        // All tokens are fed in one step. So the item has the bytes of the last point of the log
        // line; both come from the same sum.
        CHECK(items[arm].kv_bytes == line.points.back()[1]);
        for (const auto &point : line.points) CHECK(point[1] <= items[arm].peak_kv_bytes);
    }
    // The peak is during the eviction, when memory holds h2o's inputs and the whole prompt.
    uint64_t most = 0;
    for (const auto &point : lines["h2o"].points) most = std::max(most, point[1]);
    CHECK(items["h2o"].peak_kv_bytes > most);
    // All slots have heads of 64 elements in q8_0. Keys that were rotated again also have an f32
    // copy or copies of their codes.
    const ab::Item &turned = items["turned"];
    CHECK(turned.own_full_kv_bytes > 0);
    CHECK(turned.own_full_kv_bytes < turned.full_kv_bytes);
    CHECK(items["snapkv"].own_full_kv_bytes == 0);
    CHECK(items["h2o"].policy_bytes > 0);
    CHECK(items["full"].policy_bytes == 0);
    const auto cache_peak = [&](const std::string &arm) {
        return items[arm].peak_kv_bytes - items[arm].policy_bytes;
    };
    // kvzip repeats the prompt, which takes memory in addition to the prompt
    CHECK(cache_peak("kvzip") > cache_peak("snapkv"));
}

TEST_CASE("the results hold the tokens of the first prompts, and which of them each arm kept") {
    const Lab lab;
    lab.run("arms: {full: {policy: none}, window: {policy: sliding_window}}\n"
            "budgets: [{tokens: 48}]\n"
            "tasks: [{kind: passkey, lengths: [160], depths: 1, items: 3}]\n",
            "out"); // two documents have maps by default
    std::map<std::string, ab::Prompt> prompts;
    std::vector<ab::KeepMap> maps;
    std::map<std::string, ab::Item> items;
    ab::read_records(lab.folder / "out/results.jsonl", [&](ab::Record &&record, uint64_t) {
        if (const auto *prompt = std::get_if<ab::Prompt>(&record)) {
            CHECK(prompt->arm == "full");
            CHECK(prompts.try_emplace(prompt->item, *prompt).second);
        }
        if (const auto *map = std::get_if<ab::KeepMap>(&record)) maps.push_back(*map);
        if (const auto *item = std::get_if<ab::Item>(&record))
            if (item->arm == "full") items[item->item] = *item;
    });
    CHECK(prompts.size() == 2);
    REQUIRE(maps.size() == 2);
    for (const ab::KeepMap &map : maps) {
        CHECK(map.arm == "window");
        const ab::Prompt &prompt = prompts.at(map.item);
        REQUIRE(map.kept.size() == prompt.tokens.size());
        std::string text;
        for (const std::string &token : prompt.tokens) text += token;
        CHECK(contains(text, items.at(map.item).expected));
        // sliding_window keeps the first tokens and the newest ones, in every head.
        CHECK(map.kept.substr(0, 4) == "____");
        CHECK(map.kept.substr(map.kept.size() - 40) == std::string(40, '_'));
        CHECK(map.kept[20] == '0');
        CHECK(std::count(map.kept.begin(), map.kept.end(), '_') == 48);
    }
    ab::Names names;
    const ab::Table table = ab::load_table(lab.folder / "out", names);
    REQUIRE(table.kept_tokens.size() == 2);
    CHECK(table.kept_tokens.begin()->second.kept.begin()->first ==
          std::pair<std::string, std::string>{"window", "tokens:48"});
}

TEST_CASE("a quantized cache's bytes are those of its blocks with their scales") {
    const Lab lab;
    lab.run("arms: {full: {policy: none}, q8: {policy: none, kv: q8_0},\n"
            "       window: {policy: sliding_window}}\n"
            "budgets: [{tokens: 48}]\n"
            "tasks: [{kind: continuation, text: " +
                tiny + "/heldout.txt, prefix: 160, score: 10, documents: 2}]\n",
            "out");
    ab::Names names;
    const ab::Table table = ab::load_table(lab.folder / "out", names);
    const auto cell = [&](const std::string &arm, const std::string &budget) {
        const ab::Cell *found = table.find({arm, budget, "", "continuation", "nll"});
        REQUIRE(found != nullptr);
        return *found;
    };
    const ab::Cell full = cell("full", "full"), q8 = cell("q8", "full"),
                   window = cell("window", "tokens:48");
    // A q8_0 block of 32 numbers has 34 bytes, in f16 it has 64.
    CHECK(q8.kv_bytes == Approx(full.kv_bytes * 34 / 64).epsilon(0.01));
    // Caches hold whole blocks of slots, so bytes are not proportional to slots.
    const double computed = full.kv_bytes * window.kept_slots / full.kept_slots;
    CHECK(window.kv_bytes != Approx(computed).epsilon(0.01));
    CHECK(static_cast<double>(window.peak_kv_bytes) > window.kv_bytes);
}

TEST_CASE("a prompt that is too long is refused before the first item, with its line") {
    const Lab lab;
    std::string text;
    for (int i = 0; i < 3; ++i) {
        std::string words;
        for (int w = 0; w < (i == 1 ? 2000 : 20); ++w) words += "word ";
        text += R"({"input": ")" + words + R"(\nWhat?", "outputs": ["x"]})" + "\n";
    }
    lab.folder.write("lines.jsonl", text);
    const std::string file = "arms: {full: {policy: none}}\n"
                             "tasks: [{kind: jsonl, path: lines.jsonl, max_tokens: 4}]\n";
    const std::string found = error_text([&] { lab.run(file, "out"); });
    INFO(found);
    CHECK(contains(found, "lines.jsonl:2: "));
    CHECK(contains(found, "the full cache holds 512 (model.context)"));
    CHECK_FALSE(fs::exists(lab.folder / "out/results.jsonl"));
    ab::RunOptions first;
    first.items = 1; // this run does not need the document that is too long
    lab.run(file, "out", first);
}

TEST_CASE("if the reference differs from itself, it runs again on all documents") {
    const Lab lab;
    const std::string text = "arms: {full: {policy: none}}\n"
                             "tasks: [{kind: passkey, lengths: [160], depths: 1, items: 10}]\n";
    lab.run(text, "out");
    const auto again = [&] {
        size_t count = 0;
        for (const ab::Item &item : Lab::items(lab.folder / "out/results.jsonl"))
            count += item.arm == "full#again" ? 1 : 0;
        return count;
    };
    CHECK(again() == 8);
    // Changes the results as if the third document had a different result.
    const ab::Header header = ab::read_header(lab.folder / "out/results.jsonl");
    std::string changed = ab::header_line(header) + "\n";
    ab::read_records(lab.folder / "out/results.jsonl", [&](ab::Record &&record, uint64_t) {
        auto *item = std::get_if<ab::Item>(&record);
        if (item != nullptr && item->arm == "full#again" && item->item == "2")
            item->value = 1 - item->value;
        changed += ab::record_line(record) + "\n";
    });
    lab.folder.write("out/results.jsonl", changed);
    lab.run(text, "out");
    CHECK(again() == 10);
}

TEST_CASE(
    "there is a warning for answers of one token if the question is known before the eviction") {
    const Lab lab;
    lab.folder.write(
        "lines.jsonl",
        "{\"input\": \"The ball was red.\\nWhat colour? It was\", \"outputs\": [\"red\"]}\n"
        "{\"input\": \"The ball was blue.\\nWhat colour? It was\", \"outputs\": [\"blue\"]}\n");
    const std::string file =
        "arms: {full: {policy: none}}\nprotocol: [question_blind, whole_prompt]\n"
        "tasks: [{kind: jsonl, path: lines.jsonl, max_tokens: 1}]\n";
    const auto count = [](const std::multiset<std::string> &lines) {
        size_t found = 0;
        for (const std::string &line : lines)
            found += contains(line, "expected answers have only one token") ? 1 : 0;
        return found;
    };
    CHECK(count(lab.run(file, "out")) == 1);
    // the warning appears once, no matter how often the run is continued
    CHECK(count(lab.run(file, "out")) == 1);
}
