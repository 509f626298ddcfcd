// Tests of reading an eviction log and of the results that are computed from it.
#include "eval/evictions/history.hpp"
#include "support/error_text.hpp"
#include "support/page_checks.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

using namespace keel;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using test::error_text;

namespace {

EvictionRecord record(int64_t tokens, uint32_t layer, std::vector<std::vector<TokenRun>> runs,
                      keel_trigger trigger = KEEL_TRIGGER_BUDGET) {
    EvictionRecord r;
    r.tokens = tokens;
    r.layer = layer;
    r.heads = static_cast<uint32_t>(runs.size());
    r.trigger = trigger;
    r.budget = 8;
    r.held_max = 10;
    r.microseconds = 10 * static_cast<double>(layer + 1);
    r.freed_bytes = 1024;
    for (const auto &head : runs) {
        int64_t kept = 0;
        for (const TokenRun &run : head) kept += run.to - run.from;
        r.kept.push_back(kept);
    }
    r.kept_min = *std::min_element(r.kept.begin(), r.kept.end());
    r.kept_max = *std::max_element(r.kept.begin(), r.kept.end());
    r.evicted_max = r.held_max - r.kept_min;
    r.evicted = r.held_max * r.heads - std::accumulate(r.kept.begin(), r.kept.end(), int64_t{0});
    r.tokens_kept = std::move(runs);
    return r;
}

// Returns a log of two evictions in two layers with two heads.
std::string sample() {
    const EvictionSource source = {"snapkv", "uniform", "{}"};
    std::string text;
    text += to_json(record(10, 0, {{{0, 2}, {4, 10}}, {{2, 10}}}), source) + "\n";
    text += to_json(record(10, 1, {{{2, 10}}, {{2, 10}}}), source) + "\n";
    EvictionRecord pressed = record(20, 0, {{{0, 1}, {16, 20}}, {{15, 20}}}, KEEL_TRIGGER_PRESSURE);
    PressureState state;
    state.level = 1;
    state.share = 0.5;
    state.why = "100.0 MiB of memory available (a <script>), below 256.0 MiB";
    state.limited_by = "a <script>";
    pressed.pressure = std::make_shared<PressureState>(state);
    text += to_json(pressed, source) + "\n";
    text += to_json(record(20, 1, {{{15, 20}}, {{15, 20}}}, KEEL_TRIGGER_PRESSURE), source) + "\n";
    return text;
}

std::string fault(const std::string &text) {
    return error_text([&] { parse_eviction_log(text, "e.jsonl"); }, ErrorKind::input);
}

std::string with(const std::string &key, const std::string &value) {
    auto json = nlohmann::ordered_json::parse(sample().substr(0, sample().find('\n')));
    json[key] = nlohmann::ordered_json::parse(value);
    return json.dump() + "\n";
}

} // namespace

TEST_CASE("A log of a model with windows says on which layers the policy acts") {
    EvictionSource source = {"snapkv"};
    source.windowed_layers = 15;
    source.all_layers = 18;
    source.window = 512;
    const std::string line = to_json(record(10, 5, {{{2, 10}}, {{2, 10}}}), source) + "\n";
    const LogHistory h = parse_eviction_log(line, "e.jsonl");
    CHECK(h.lines.at(0).layer == 5);
    const std::string words = "the policy acts on 3 of 18 layers; the other 15 layers hold only "
                              "their window of 512 tokens";
    CHECK_THAT(log_text(h, {}), Contains(words));
    CHECK_THAT(log_html(h, {}), Contains(words));
    CHECK(log_json(h).at("windows").at("tokens") == 512);
    CHECK(log_json(parse_eviction_log(sample(), "e.jsonl")).at("windows").is_null());
    CHECK_THAT(fault(with("windows", R"({"layers": 18, "of": 18, "tokens": 512})")),
               Contains("layers"));
}

TEST_CASE("A log reads back as what was written") {
    const LogHistory h = parse_eviction_log(sample(), "e.jsonl");
    REQUIRE(h.lines.size() == 4);
    CHECK(h.lines[0].policy == "snapkv");
    CHECK(h.lines[0].allocator == "uniform");
    CHECK(h.lines[0].budget == 8);
    CHECK(h.lines[0].kept == std::vector<int64_t>{8, 8});
    CHECK(h.lines[0].runs[0] == std::vector<TokenRun>{{0, 2}, {4, 10}});
    CHECK(h.lines[2].trigger == "pressure");
    CHECK(h.lines[2].pressure_share == 0.5);
    CHECK_FALSE(h.is_cut_off);
}

TEST_CASE("The totals of a log count whole evictions") {
    const LogTotals t = log_totals(parse_eviction_log(sample(), "e.jsonl"));
    CHECK(t.evictions == 2);
    CHECK(t.sequences == 1);
    CHECK(t.freed_bytes == 4096);
    CHECK(t.freed_most == 2048);
    CHECK(t.slots == 2 + 5);
    CHECK(t.slots_in_all == 4 * 2 + 4 * 5);
    CHECK(t.us_median == 30);
    CHECK(t.us_total == 60);
    REQUIRE(t.layers.size() == 2);
    CHECK(t.layers[0].kept_min == 5);
    CHECK(t.layers[0].kept_max == 8);
    CHECK(t.layers[0].head_kept_sum == std::vector<double>{13, 13});
    CHECK(t.has_positions);
}

TEST_CASE("Each head of unequal length is compared with its own length") {
    EvictionRecord r = record(40, 0, {{{0, 17}}, {{0, 4}}});
    r.held_max = 34;
    r.evicted = 17 + 12; // 17 of 34 slots and 12 of 16 slots
    r.evicted_max = 17;
    const LogTotals t = log_totals(parse_eviction_log(to_json(r, {"kvzip"}) + "\n", "e.jsonl"));
    CHECK(t.slots == 17);
    CHECK(t.slots_in_all == 29);
}

TEST_CASE(
    "A picture shows how much of each stretch was kept, and which tokens were not there yet") {
    const LogHistory h = parse_eviction_log(sample(), "e.jsonl");
    const auto layers = log_layers(h);
    REQUIRE(layers.size() == 2);
    const KeepPicture p = keep_picture(h, layers[0], 0, 10, 10); // each column stands for 2 tokens
    CHECK(p.at == std::vector<int64_t>{10, 20});
    REQUIRE(p.bins == 10);
    const std::vector<float> first(p.share.begin(), p.share.begin() + 10);
    CHECK(first == std::vector<float>{1, 0, 1, 1, 1, -1, -1, -1, -1, -1});
    CHECK(p.share[10] == 0.5f);
    CHECK(p.share[19] == 1.0f);
    const KeepPicture mean = keep_picture(h, layers[0], std::nullopt, 1, 10);
    CHECK(mean.at == std::vector<int64_t>{20});
    CHECK(mean.share[0] == 0.25f);
}

TEST_CASE("The text, the JSON and the page agree, and the page loads nothing") {
    const LogHistory h = parse_eviction_log(sample(), "e<&>.jsonl");
    const std::string text = log_text(h, {});
    CHECK_THAT(text, Contains("2 evictions in 1 sequence, policy snapkv, allocator uniform") &&
                         Contains("budget 1, pressure 1") && Contains("layer 0 head 1") &&
                         Contains("layer 1 head 0") && Contains("memory was short at 20 tokens"));
    const auto json = log_json(h);
    CHECK(json.at("evictions") == 2);
    CHECK(json.at("pressure").at(0).at("share") == 0.5);
    CHECK(json.at("layers").at(1).at("kept").at("min") == 5);
    const std::string page = log_html(h, {});
    CHECK_THAT(page, StartsWith("<!doctype html>") && Contains(std::string(log_html_mark)));
    test::check_offline(page);
    const auto data = test::data_of(page);
    CHECK(data.at("file") == "e<&>.jsonl");
    CHECK(data.at("panels").size() == 4); // one panel for each head
    const auto &panel = data.at("panels").at(3);
    CHECK_THAT(panel.at("title"), StartsWith("layer 1 head 1: "));
    CHECK(panel.at("shares").get<std::string>().size() ==
          panel.at("columns").get<size_t>() * panel.at("bins").get<size_t>());
    CHECK(data.at("slots").at("evictions").size() == 2);
    CHECK(data.at("slots").at("evictions").at(1).at(4).get<std::string>().find("a <script>") !=
          std::string::npos);
    CHECK(data.at("layers").at("rows").size() == 2);
    CHECK_THAT(log_text(h, {.sequence = std::nullopt, .layer = 1, .head = 0}),
               !Contains("layer 1 head 1:"));
    CHECK_THAT(error_text([&] { log_text(h, {.sequence = std::nullopt, .layer = 7, .head = {}}); },
                          ErrorKind::usage),
               Contains("layer 7"));
    CHECK_THAT(error_text([&] { log_text(h, {.sequence = std::nullopt, .layer = 1, .head = 2}); },
                          ErrorKind::usage),
               Contains("2 heads"));
    CHECK_THAT(error_text([&] { log_text(h, {.sequence = 3, .layer = {}, .head = {}}); },
                          ErrorKind::usage),
               Contains("sequence 3"));
}

TEST_CASE("Logs without positions, empty logs and logs of an older version are summarized") {
    const std::string old =
        R"({"sequence":0,"tokens":577,"seconds":4.81,"trigger":"budget",)"
        R"("policy":"sliding_window","layer":0,"heads":2,)"
        R"("held":577,"kept_min":512,"kept_max":512,"freed_bytes":65536,"moved_keys":8,)"
        R"("microseconds":41.2})"
        "\n";
    const LogHistory h = parse_eviction_log(old, "old.jsonl");
    CHECK_THAT(log_text(h, {}),
               Contains("1 eviction in 1 sequence") && Contains("policy.log_positions"));
    CHECK(test::data_of(log_html(h, {})).at("panels").empty());
    CHECK(log_totals(h).slots == 65);
    CHECK(log_totals(h).slots_in_all == 130);
    const LogHistory empty = parse_eviction_log("", "none.jsonl");
    CHECK(log_text(empty, {}) == "none.jsonl: nothing was evicted\n");
    CHECK(test::data_of(log_html(empty, {})).at("slots").is_null());
    CHECK(log_json(empty).at("evictions") == 0);
}

TEST_CASE("Broken lines are refused with their place, except the incomplete line of a killed run") {
    CHECK_THAT(fault(sample() + "hello\n"), StartsWith("e.jsonl:5:1: not valid JSON: "));
    CHECK_THAT(fault("[1]\n"), StartsWith("e.jsonl:1: "));
    CHECK_THAT(fault("\n{}\n"), Contains("e.jsonl:2: 'sequence' is missing"));
    CHECK_THAT(fault(with("tokens", "-1")), Contains("tokens: ") && Contains("found -1"));
    CHECK_THAT(fault(with("tokens", "18446744073709551615")), Contains("tokens: "));
    CHECK_THAT(fault(with("tokens", "1e300")), Contains("tokens: "));
    CHECK_THAT(fault(with("heads", "0")), Contains("heads"));
    CHECK_THAT(fault(with("heads", "1000000000")), Contains("heads"));
    CHECK_THAT(fault(with("kept", "[1]")), Contains("2 numbers"));
    CHECK_THAT(fault(with("kept_tokens", "[[[5,4]],[]]")), Contains("kept_tokens"));
    CHECK_THAT(fault(with("kept_tokens", "[[[0,4],[3,6]],[]]")), Contains("kept_tokens"));
    CHECK_THAT(fault(with("kept_min", "99")), Contains("kept_min"));
    CHECK_THAT(fault(with("evicted", "99")), Contains("evicted: ") && Contains("found 99"));
    CHECK_THAT(fault(with("evicted_max", "99")), Contains("evicted_max"));
    CHECK_THAT(fault(with("microseconds", "-3")), Contains("microseconds"));
    CHECK_THAT(fault("{\"a\":" + std::string(100000, '[') + "\n"), Contains("nested levels"));
    const std::string cut = sample() + sample().substr(0, 100);
    const LogHistory h = parse_eviction_log(cut, "e.jsonl");
    CHECK(h.lines.size() == 4);
    CHECK(h.is_cut_off);
    CHECK_THAT(log_text(h, {}), Contains("cut off"));
    const test::TempFolder folder;
    CHECK_THAT(error_text([&] { read_eviction_log(folder / "none.jsonl"); }),
               Contains("none.jsonl"));
}
