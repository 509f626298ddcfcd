#include "eval/ab/records/record.hpp"
#include "eval/ab/records/table.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

using namespace keel;
using test::contains;

namespace {

ab::Header header() {
    ab::Header h;
    h.config_hash = "0123456789abcdef";
    h.version = "1.0";
    h.commit = "abc";
    h.model = "tiny";
    h.machine = "a processor";
    h.reference = "full";
    h.arms = {{"full", "policy: none"}, {"window", "policy: sliding_window"}};
    h.contrasts = {{"window", "full", ""}, {"full", "window", "speed/ttft_ms"}};
    h.statistics.primary = "passkey";
    h.statistics.margins = {{"hit", 0.02}};
    h.shard = 2;
    h.shards = 3;
    h.facts = {{"threads", "2"}, {"KV", "f16"}};
    return h;
}

ab::Item item(const std::string &name, double value) {
    ab::Item i;
    i.arm = "window";
    i.budget = "tokens:128";
    i.protocol = "question_blind";
    i.task = "passkey";
    i.seed = 3;
    i.metric = "hit";
    i.document = "d1";
    i.item = name;
    i.value = value;
    i.length = 512;
    i.depth = 0.25;
    i.kv_bytes = 1000;
    i.full_kv_bytes = 4000;
    i.peak_kv_bytes = 4000;
    i.kept_slots = 127.5;
    i.seen = 512;
    i.evictions = 1;
    i.eviction_us = 12.5;
    i.answer = "4711 <b>\n";
    i.expected = "4711";
    return i;
}

std::vector<ab::Record> read(const std::filesystem::path &file, ab::ReadResult *result = nullptr) {
    std::vector<ab::Record> out;
    const ab::ReadResult found =
        ab::read_records(file, [&](ab::Record &&r, uint64_t) { out.push_back(std::move(r)); });
    if (result != nullptr) *result = found;
    return out;
}

std::string record_text(const std::filesystem::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

const std::string place = R"("arm":"a","budget":"full","task":"t")";

} // namespace

TEST_CASE("records of an experiment are read back unchanged") {
    const test::TempFolder folder;
    const auto file = folder / "results.jsonl";
    {
        ab::Writer writer(file, header(), ab::Writer::Mode::create);
        writer.write(item("i1", 1));
        ab::KeepMap map;
        static_cast<ab::Place &>(map) = item("", 0);
        map.item = "i1";
        map.layers = 2;
        map.kv_heads = 1;
        map.bins.assign(2 * 64, 0.5F);
        map.kept = "0_W";
        writer.write(map);
        ab::Timeline timeline;
        static_cast<ab::Place &>(timeline) = item("", 0);
        timeline.points = {{1, 10, 0}, {2, 5, 7}};
        writer.write(timeline);
        ab::Curve curve;
        static_cast<ab::Place &>(curve) = item("", 0);
        curve.metric = "nll";
        curve.values = {1.5, 0.1 + 0.2};
        writer.write(curve);
        writer.write(ab::Warning{"window", "", "", "", "something"});
        ab::Prompt prompt;
        static_cast<ab::Place &>(prompt) = item("", 0);
        prompt.item = "i1";
        prompt.tokens = {"<s>", " a\n", "\xff"};
        writer.write(prompt);
    }
    ab::ReadResult result;
    const auto records = read(file, &result);
    REQUIRE(records.size() == 6);
    CHECK(result.records == 6);
    CHECK(result.bytes == std::filesystem::file_size(file));
    CHECK_FALSE(result.dropped_tail);
    CHECK(ab::header_line(result.header) == ab::header_line(header()));
    CHECK(result.header.statistics.margins == ab::Margins{{"hit", 0.02}});
    CHECK(result.header.contrasts == header().contrasts);
    CHECK(result.header.shard == 2);
    CHECK(result.header.facts == header().facts);
    const auto &i = std::get<ab::Item>(records[0]);
    CHECK(ab::record_line(i) == ab::record_line(item("i1", 1)));
    CHECK(i.seed == 3);
    CHECK(i.depth == 0.25);
    CHECK(i.kept_slots == 127.5);
    CHECK(i.answer == "4711 <b>\n");
    CHECK(std::get<ab::KeepMap>(records[1]).bins[70] == 0.5F);
    CHECK(std::get<ab::Timeline>(records[2]).points[1] == std::array<uint64_t, 3>{2, 5, 7});
    CHECK(std::get<ab::Curve>(records[3]).values[1] == 0.1 + 0.2);
    CHECK(std::get<ab::Warning>(records[4]).text == "something");
    CHECK(std::get<ab::KeepMap>(records[1]).kept == "0_W");
    CHECK(std::get<ab::Prompt>(records[5]).tokens ==
          std::vector<std::string>{"<s>", " a\n", "\xef\xbf\xbd"});
}

TEST_CASE("the record of a prompt is bounded, and results without it are read") {
    const test::TempFolder folder;
    const auto file = folder / "results.jsonl";
    {
        ab::Writer writer(file, header(), ab::Writer::Mode::create);
        ab::Prompt prompt;
        static_cast<ab::Place &>(prompt) = item("", 0);
        prompt.item = "many";
        prompt.tokens.assign(ab::most_prompt_tokens + 5, "a");
        writer.write(prompt);
        prompt.tokens.assign(5, std::string(ab::most_prompt_text / 2, '\xff'));
        writer.write(prompt);
        ab::KeepMap map;
        static_cast<ab::Place &>(map) = item("", 0);
        map.layers = map.kv_heads = 1;
        map.bins.assign(64, 0.5F);
        writer.write(map);
        map.kept = "0?";
        CHECK(contains(test::error_text([&] { writer.write(map); }, ErrorKind::usage), "shares"));
    }
    const auto records = read(file);
    REQUIRE(records.size() == 3);
    CHECK(std::get<ab::Prompt>(records[0]).tokens.size() == ab::most_prompt_tokens);
    CHECK(std::get<ab::Prompt>(records[1]).tokens.size() == 2);
    CHECK(std::get<ab::KeepMap>(records[2]).kept.empty());
}

TEST_CASE("an incomplete last line is ignored and reported, and a continued run cuts it off") {
    const test::TempFolder folder;
    const auto file = folder / "results.jsonl";
    {
        ab::Writer writer(file, header(), ab::Writer::Mode::create);
        writer.write(item("i1", 1));
    }
    const std::string whole = record_text(file);
    std::ofstream(file, std::ios::app | std::ios::binary) << R"({"kind":"item","arm":"win)";
    ab::ReadResult result;
    CHECK(read(file, &result).size() == 1);
    CHECK(result.dropped_tail);
    CHECK(result.bytes == whole.size());
    {
        ab::Writer writer(file, header(), ab::Writer::Mode::resume);
        writer.write(item("i2", 0));
    }
    CHECK(record_text(file).substr(0, whole.size()) == whole);
    CHECK(read(file, &result).size() == 2);
    CHECK_FALSE(result.dropped_tail);

    // The settings of the verdicts may change while a run is continued. Its start time does not
    // change.
    ab::Header other = header();
    other.statistics.margins["hit"] = 0.5;
    other.date = "later";
    std::ofstream(file, std::ios::app | std::ios::binary) << "{half";
    {
        ab::Writer writer(file, other, ab::Writer::Mode::resume);
        writer.write(item("i3", 0));
    }
    CHECK(read(file, &result).size() == 3);
    CHECK(result.header.statistics.margins.at("hit") == 0.5);
    CHECK(result.header.date == header().date);

    // A run that was killed while it wrote its first line has lost nothing.
    const auto early = folder.write("early.jsonl", R"({"keel_ab":1,"config)");
    CHECK(contains(test::error_text([&] { ab::read_header(early); }), "an incomplete line"));
    { ab::Writer writer(early, header(), ab::Writer::Mode::resume); }
    CHECK(ab::read_header(early).config_hash == header().config_hash);
    { ab::Writer writer(folder / "new.jsonl", header(), ab::Writer::Mode::resume); }
    CHECK(read(folder / "new.jsonl").empty());
}

TEST_CASE("results are not overwritten, and not appended to another experiment's results") {
    const test::TempFolder folder;
    const auto file = folder / "results.jsonl";
    { ab::Writer writer(file, header(), ab::Writer::Mode::create); }
    CHECK(contains(test::error_text([&] { ab::Writer(file, header(), ab::Writer::Mode::create); }),
                   "exists already"));
    ab::Header other = header();
    other.config_hash = "f";
    CHECK(contains(test::error_text([&] { ab::Writer(file, other, ab::Writer::Mode::resume); }),
                   "config hash"));
    other = header();
    other.shard = 1;
    CHECK(contains(test::error_text([&] { ab::Writer(file, other, ab::Writer::Mode::resume); }),
                   "shard 2/3"));
}

TEST_CASE("records that cannot be read back are not written") {
    const test::TempFolder folder;
    ab::Writer writer(folder / "results.jsonl", header(), ab::Writer::Mode::create);
    const auto refused = [&](const ab::Record &record, ErrorKind kind, const char *part) {
        CHECK(contains(test::error_text([&] { writer.write(record); }, kind), part));
    };
    ab::Item i = item("i", std::numeric_limits<double>::quiet_NaN());
    refused(i, ErrorKind::runtime, "hit is nan");
    i.value = std::numeric_limits<double>::infinity();
    refused(i, ErrorKind::runtime, "hit is inf");
    i = item("", 1);
    refused(i, ErrorKind::usage, "a result has no item");
    i = item(std::string(201, 'x'), 1);
    refused(i, ErrorKind::usage, "201 bytes");
    i = item("i", 1);
    i.depth = 1.5;
    refused(i, ErrorKind::runtime, "depth");
    ab::KeepMap map;
    map.arm = map.task = "a";
    map.layers = map.kv_heads = 1;
    refused(map, ErrorKind::usage, "0 numbers");
    map.bins.assign(64, 2.0F);
    refused(map, ErrorKind::runtime, "share");
    refused(ab::Warning{}, ErrorKind::usage, "has no text");
    // Long answers, and bytes that are not text, are changed so that they fit.
    i = item("i", 1);
    i.answer = std::string(5000, '\xff');
    i.expected = std::string(5000, 'e');
    writer.write(i);
    const auto records = read(folder / "results.jsonl");
    REQUIRE(records.size() == 1);
    CHECK(std::get<ab::Item>(records[0]).expected.size() == ab::longest_text / 3);
}

TEST_CASE("a broken line is reported with file and line") {
    const test::TempFolder folder;
    const std::string head = ab::header_line(header()) + "\n";
    const auto message = [&](const std::string &line) {
        const auto file =
            folder.write("r.jsonl", head + ab::record_line(item("i", 1)) + "\n" + line + "\n");
        const std::string text = test::error_text([&] { read(file); });
        CHECK(contains(text, "r.jsonl:3:"));
        return text;
    };
    CHECK(contains(message("{"), "not valid JSON"));
    CHECK(contains(message(""), "not valid JSON"));
    CHECK(contains(message("\x01\xff"), "not valid JSON"));
    CHECK(contains(message("[1,2]"), "JSON object"));
    CHECK(contains(message("{}"), "'kind' is missing"));
    CHECK(contains(
        message(R"({"kind":"x\u001b[2J"})"),
        "kind: expected item, keep_map, prompt, timeline, curve or warning, found \"x\\x1b"));
    CHECK(contains(message(R"({"kind":"item"})"), "'arm' is missing"));
    CHECK(contains(
        message(R"({"kind":"item",)" + place + R"(,"metric":"m","item":"i","value":null})"),
        "value"));
    CHECK(
        contains(message(R"({"kind":"item",)" + place + R"(,"metric":"m","item":"i","value":"1"})"),
                 "value"));
    CHECK(contains(
        message(R"({"kind":"item",)" + place + R"(,"metric":"m","item":"i","value":1e999})"),
        "JSON"));
    CHECK(contains(
        message(R"({"kind":"item",)" + place + R"(,"metric":"m","item":"i","value":1,"seen":-1})"),
        "seen"));
    CHECK(contains(
        message(R"({"kind":"item",)" + place + R"(,"metric":"m","item":"i","value":1,"depth":2})"),
        "depth"));
    CHECK(contains(message(R"({"kind":"item",)" + place + R"(,"metric":5,"item":"i","value":1})"),
                   "metric"));
    CHECK(contains(
        message(R"({"kind":"keep_map",)" + place + R"(,"layers":1000000,"kv_heads":1,"bins":[]})"),
        "layers"));
    CHECK(contains(
        message(R"({"kind":"keep_map",)" + place + R"(,"layers":1,"kv_heads":1,"bins":[0.5]})"),
        "found an array of 1"));
    CHECK(contains(message(R"({"kind":"timeline",)" + place + R"(,"points":[[1,2]]})"), "points"));
    CHECK(contains(message(R"({"kind":"timeline",)" + place + R"(,"points":[[1,2,0.5]]})"),
                   "points"));
    CHECK(contains(message(R"({"kind":"curve",)" + place + R"(,"metric":"m","values":[1,null]})"),
                   "values"));
    CHECK(contains(message(std::string(100'000, '[')), "nested levels"));
    CHECK(contains(message(R"({"kind":")" + std::string(300, 'k') + "\"}"), "bytes, found 300"));
    CHECK(contains(message(std::string(ab::most_line_bytes + 1, ' ')), "the line has more than"));
}

TEST_CASE("a file that does not have results of an experiment is reported") {
    const test::TempFolder folder;
    const auto message = [&](const std::string &content) {
        return test::error_text([&] { ab::read_header(folder.write("r.jsonl", content)); });
    };
    CHECK(contains(message(""), "an empty file"));
    CHECK(contains(message("\n"), "not valid JSON"));
    CHECK(contains(message("{}\n"), "expected the header"));
    CHECK(contains(message("{\"keel_ab\":2,\"config_hash\":\"x\"}\n"), "version 2"));
    CHECK(contains(message("{\"keel_ab\":1}\n"), "'config_hash' is missing"));
    CHECK(contains(
        message("{\"keel_ab\":1,\"config_hash\":\"x\",\"statistics\":{\"resamples\":1e9}}\n"),
        "resamples"));
    CHECK(contains(
        message("{\"keel_ab\":1,\"config_hash\":\"x\",\"statistics\":{\"confidence\":1}}\n"),
        "confidence"));
    CHECK(contains(message("{\"keel_ab\":1,\"config_hash\":\"x\",\"shards\":2,\"shard\":3}\n"),
                   "shard"));
    CHECK(contains(message("{\"keel_ab\":1,\"config_hash\":\"x\",\"arms\":[[\"a\"]]}\n"), "arms"));
    CHECK(contains(test::error_text([&] { ab::read_header(folder / "none.jsonl"); }),
                   "found nothing"));
    CHECK(contains(test::error_text([&] { ab::read_header(folder.path()); }), "not a file"));
}

TEST_CASE("results from before each metric had its own margin keep the meaning of their protocol") {
    const test::TempFolder folder;
    const auto file = folder / "results.jsonl";
    const auto write = [&](const std::string &statistics) {
        ab::Item asked = item("i1", 1);
        asked.protocol = "query_aware";
        std::ofstream(file) << R"({"keel_ab":1,"config_hash":"0123","statistics":)" << statistics
                            << "}\n"
                            << ab::record_line(asked) << "\n";
    };
    ab::ReadResult result;
    write(R"({"primary":"passkey","margin":0.01})");
    CHECK(std::get<ab::Item>(read(file, &result)[0]).protocol == "whole_prompt");
    CHECK(result.header.old_margin == 0.01);
    ab::Names names;
    const ab::Table table = ab::load_table(file, names);
    REQUIRE(table.notes.size() == 1);
    CHECK(contains(table.notes[0], "'query_aware' is shown under its new name 'whole_prompt'"));
    write(R"({"primary":"passkey/hit","margins":{"hit":0.01}})");
    CHECK(std::get<ab::Item>(read(file, &result)[0]).protocol == "query_aware");
    CHECK_FALSE(result.header.old_margin);
    // A margin of 100% or more has no logarithm.
    write(R"({"margins":{"decode_tokens_per_second":1.5}})");
    CHECK(contains(test::error_text([&] { read(file); }), "a margin below 1 (which is 100 %)"));
}
