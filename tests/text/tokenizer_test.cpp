// Compares the tokenizer with Hugging Face's, by golden files (golden/make_tokenizer_golden.py).
#include "base/error.hpp"
#include "text/golden_text.hpp"
#include "text/tokenizer/tokenizer.hpp"
#include "text/utf8.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <thread>

using keel::Tokenizer;
using Json = nlohmann::json;

namespace {

const std::string source_dir = KEEL_SOURCE_DIR;
const std::string golden_dir = source_dir + "/tests/text/golden/";

const Tokenizer &tiny() {
    static const std::unique_ptr<Tokenizer> tokenizer =
        keel::load_tokenizer(source_dir + "/models/tiny");
    return *tokenizer;
}

Json patched(Json base, const Json &patch) {
    for (const auto &[key, value] : patch.items()) {
        if (key == "model")
            base[key].update(value);
        else
            base[key] = value;
    }
    return base;
}

std::unique_ptr<Tokenizer> from_json(const Json &tree) {
    const std::string text = tree.dump();
    keel::TokenizerFiles files;
    files.tokenizer_json = text;
    return keel::parse_tokenizer(files);
}

const Json &variants() {
    static const Json document = Json::parse(read_text(golden_dir + "variants.json"));
    return document;
}

} // namespace

TEST_CASE(
    "models/tiny gives the ids of Hugging Face tokenizers, and decoding gives the text back") {
    std::istringstream lines(read_text(golden_dir + "tiny.txt"));
    std::string line;
    std::size_t count = 0;
    while (std::getline(lines, line)) {
        const std::size_t tab = line.rfind('\t');
        REQUIRE(tab != std::string::npos);
        const auto text = Json::parse(line.substr(0, tab)).get<std::string>();
        const auto expected = unpack(std::string_view(line).substr(tab + 1));
        const auto ids = tiny().encode(text, false);
        if (ids != expected || tiny().decode(ids, false) != text) {
            INFO("line " << count + 1 << ": " << line.substr(0, tab));
            CHECK(ids == expected);
            CHECK(tiny().decode(ids, false) == text);
        }
        ++count;
    }
    CHECK(count == 3000);
}

TEST_CASE("every variant of a tokenizer.json gives the ids of Hugging Face tokenizers") {
    const Json &document = variants();
    CHECK(document["variants"].size() > 50);
    for (const Json &variant : document["variants"]) {
        INFO("variant: " << variant["name"]);
        const auto tokenizer = from_json(patched(document["base"], variant["patch"]));
        for (const Json &row : variant["cases"]) {
            const auto text = row[0].get<std::string>();
            INFO("text: " << row[0]);
            CHECK(tokenizer->encode(text, false) == row[1].get<std::vector<std::int32_t>>());
            CHECK(tokenizer->encode(text, true) == row.back().get<std::vector<std::int32_t>>());
        }
    }
}

TEST_CASE("the marks of models/tiny are the ones in its files") {
    CHECK(tiny().bos_id() == 4094);
    CHECK(tiny().eos_id() == 4095);
    CHECK(tiny().end_ids() == std::vector<std::int32_t>{4095});
    CHECK(tiny().ends_generation(4095));
    CHECK_FALSE(tiny().ends_generation(4094));
    CHECK(tiny().vocab_size() == 4096);
    CHECK(tiny().find_token("<|end_of_text|>") == 4095);
    CHECK_FALSE(tiny().find_token("<|nothing|>").has_value());
    CHECK(tiny().kind(4095) == keel::TokenKind::special);
    CHECK(tiny().kind(10) == keel::TokenKind::ordinary);
    CHECK(tiny().kind(4096) == keel::TokenKind::unused);
    CHECK(tiny().kind(-1) == keel::TokenKind::unused);
    CHECK(tiny().piece(-1).empty());
    CHECK(tiny().piece(INT32_MAX).empty());
    CHECK(tiny().piece(65) == "A");
    const keel::TokenizerInfo info = tiny().info();
    CHECK(info.kind == "byte-level BPE");
    CHECK(info.ordinary_tokens == 4094);
    CHECK(info.special_tokens == 2);
    CHECK(info.merges == 3838);
}

TEST_CASE("special tokens are added, parsed and left out as requested") {
    const std::int32_t bos = 4094;
    const std::int32_t eos = 4095;
    CHECK(tiny().encode("", true) == std::vector<std::int32_t>{bos});
    CHECK(tiny().encode("", false).empty());
    const std::string forged = "<|end_of_text|>";
    CHECK(tiny().encode(forged, false) == std::vector<std::int32_t>{eos});
    const auto plain = tiny().encode(forged, {.add_special = false, .parse_special = false});
    CHECK(plain.size() > 1);
    CHECK(tiny().decode(plain) == forged);
    const std::vector<std::int32_t> marked{bos, 65, eos, 66, 9999, -5};
    CHECK(tiny().decode(marked, true) == "AB");
    CHECK(tiny().decode(marked, false) == "<|begin_of_text|>A<|end_of_text|>B");
}

TEST_CASE("invalid bytes are tokenized as U+FFFD") {
    const std::string broken = "a\xF0\x9F\x98 b\xC0\x80\xFF";
    const std::string mended = "a\xEF\xBF\xBD b\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD";
    CHECK(tiny().encode(broken, false) == tiny().encode(mended, false));
    CHECK(tiny().decode(tiny().encode(broken)) == mended);
    // A token may end within a character. A character that is never complete is replaced.
    CHECK(tiny().decode(std::vector<std::int32_t>{0xF0, 0x9F, 65}) == "\xEF\xBF\xBD"
                                                                      "A");
}

TEST_CASE("a word of a megabyte and a megabyte of spaces are tokenized in reasonable time") {
    std::string word;
    const std::string letters = "onceuponatimetherewasamillersdaughter";
    while (word.size() < 1'000'000) word += letters;
    CHECK(tiny().decode(tiny().encode(word, false)) == word);
    const std::string same(1'000'000, 'a');
    CHECK(tiny().decode(tiny().encode(same, false)) == same);
    const std::string spaces = std::string(1'000'000, ' ') + "x";
    CHECK(tiny().decode(tiny().encode(spaces, false)) == spaces);
    std::string marks;
    while (marks.size() < 300'000) marks += "<|end_of_text|";
    CHECK(tiny().decode(tiny().encode(marks, false)) == marks);
}

TEST_CASE("a tokenizer can be used by several threads at once") {
    const std::string text = read_text(golden_dir + "make_tokenizer_golden.py");
    const auto expected = tiny().encode(text);
    std::vector<std::vector<std::int32_t>> results(4);
    std::vector<std::thread> threads;
    for (auto &result : results) threads.emplace_back([&] { result = tiny().encode(text); });
    for (auto &thread : threads) thread.join();
    for (const auto &result : results) CHECK(result == expected);
}
