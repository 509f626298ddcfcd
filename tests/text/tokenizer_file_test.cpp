// Tests of tokenizer.json and its side files: refused content and the errors for it.
#include "base/error.hpp"
#include "text/tokenizer/bpe.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

// Returns a complete, small, valid file, which tests damage.
Json good() {
    Json vocab = Json::object();
    for (unsigned b = 0; b < 256; ++b)
        vocab[keel::symbol_of_byte(static_cast<unsigned char>(b))] = b;
    vocab["ab"] = 256;
    return Json{{"version", "1.0"},
                {"added_tokens",
                 {{{"id", 257}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
                {"normalizer", nullptr},
                {"pre_tokenizer",
                 {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                {"post_processor", nullptr},
                {"decoder", {{"type", "ByteLevel"}}},
                {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}}}};
}

std::unique_ptr<keel::Tokenizer> parse(std::string_view text, std::string_view generation = {},
                                       std::string_view config = {},
                                       std::string_view tokenizer_config = {}) {
    return keel::parse_tokenizer({text, tokenizer_config, generation, config, "m"});
}

// Returns the error that the text causes. If there is none, the test fails.
std::string refusal(const std::string &text) {
    try {
        (void)parse(text);
    } catch (const keel::Error &error) {
        CHECK(error.kind() == keel::ErrorKind::input);
        const std::string message = error.what();
        CHECK(message.find('\n') == std::string::npos);
        CHECK(message.size() < 500);
        return message;
    }
    return "accepted";
}

std::string refusal(const char *pointer, const Json &value) {
    Json tree = good();
    tree[Json::json_pointer(pointer)] = value;
    return refusal(tree.dump());
}

} // namespace

TEST_CASE("the small file that the other cases damage is valid") {
    const auto tokenizer = parse(good().dump());
    CHECK(tokenizer->encode("ab<s>a") == std::vector<std::int32_t>{256, 257, 'a'});
    CHECK(tokenizer->end_ids().empty());
    CHECK_FALSE(tokenizer->bos_id().has_value());
}

TEST_CASE("features that Keel's tokenizer does not support are refused with name and place") {
    CHECK_THAT(refusal("/normalizer", {{"type", "NFD"}}),
               Contains(": normalizer.type: the normalizer 'NFD' is not supported"));
    CHECK(refusal("/normalizer", {{"type", "NFC"}}) == "accepted");
    CHECK_THAT(refusal("/model/type", "Unigram"),
               Contains("model.type") && Contains("'Unigram'") && Contains("BPE"));
    CHECK_THAT(refusal("/model/byte_fallback", true),
               Contains("model.byte_fallback") && Contains("SentencePiece"));
    CHECK_THAT(refusal("/model/dropout", 0.1), Contains("model.dropout"));
    CHECK(refusal("/model/dropout", 0.0) == "accepted");
    CHECK_THAT(refusal("/model/end_of_word_suffix", "</w>"), Contains("model.end_of_word_suffix"));
    CHECK_THAT(refusal("/model/continuing_subword_prefix", "##"),
               Contains("continuing_subword_prefix"));
    CHECK_THAT(refusal("/model/unk_token", "nothing"),
               Contains("model.unk_token") && Contains("'nothing'"));
    CHECK_THAT(refusal("/pre_tokenizer", nullptr), Contains("'pre_tokenizer' is missing"));
    CHECK_THAT(refusal("/pre_tokenizer/type", "Metaspace"),
               Contains("pre_tokenizer.type") && Contains("'Metaspace'"));
    const Json level{{"type", "ByteLevel"}};
    CHECK_THAT(refusal("/pre_tokenizer", {{"type", "Sequence"},
                                          {"pretokenizers", {{{"type", "Whitespace"}}, level}}}),
               Contains("pre_tokenizer.pretokenizers[0].type: the pre-tokenizer 'Whitespace' is "
                        "not supported"));
    const auto split = [&](const Json &pattern, const char *behavior) {
        const Json step{
            {"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
        return refusal("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {step, level}}});
    };
    CHECK(split({{"Regex", "a+"}}, "Isolated") == "accepted");
    CHECK_THAT(split({{"Regex", "a+"}}, "Sometimes"),
               Contains("pretokenizers[0].behavior") && Contains("\"Sometimes\""));
    CHECK_THAT(split({{"Glob", "a+"}}, "Isolated"), Contains("pretokenizers[0].pattern"));
    CHECK_THAT(split({{"Regex", "(a"}}, "Isolated"),
               Contains("pattern.Regex: the pattern does not compile"));
    CHECK_THAT(split({{"Regex", ""}}, "Isolated"), Contains("the pattern is empty"));
    CHECK_THAT(split({{"Regex", "[a&&b]"}}, "Isolated"), Contains("&& in a class at byte 2"));
    CHECK_THAT(refusal("/post_processor", {{"type", "BertProcessing"}}),
               Contains("post_processor.type"));
    CHECK_THAT(refusal("/decoder", nullptr), Contains("'decoder' is missing"));
    CHECK_THAT(refusal("/decoder/type", "WordPiece"), Contains("decoder"));
}

TEST_CASE("a damaged vocabulary is refused") {
    CHECK_THAT(refusal("/model/vocab", Json::object()),
               Contains("model.vocab: the vocabulary is empty"));
    CHECK_THAT(refusal("/model/vocab", {1, 2}),
               Contains("expected an object") && Contains("found an array of 2"));
    CHECK_THAT(refusal("/model/vocab/zz", 97), Contains("id 97 is given to both 'a' and 'zz'"));
    CHECK_THAT(refusal("/model/vocab/zz", -1), Contains("vocab.zz: ") && Contains("found -1"));
    CHECK_THAT(refusal("/model/vocab/zz", 1LL << 40), Contains("from 0 to 4194303"));
    CHECK_THAT(refusal("/model/vocab/zz", ~0ULL), Contains("from 0 to 4194303"));
    CHECK_THAT(refusal("/model/vocab/zz", 1.5), Contains("model.vocab.zz: expected an integer"));
    CHECK_THAT(refusal("/model/vocab/zz", "1"), Contains("model.vocab.zz: expected an integer"));
    CHECK_THAT(refusal("/model/vocab", {{"hello there", 0}}), Contains("not byte-level BPE"));
    CHECK_THAT(refusal("/model/merges", {"a c"}),
               Contains("model.merges[0]: 'ac' is not in model.vocab"));
    CHECK_THAT(refusal("/model/merges", {"a nothing"}),
               Contains("'nothing' is not in model.vocab"));
    CHECK_THAT(refusal("/model/merges", {"a b", "ab"}),
               Contains("model.merges[1]: expected a merge") && Contains("found \"ab\""));
    CHECK_THAT(refusal("/model/merges", {"a b c"}), Contains("expected a merge"));
    CHECK_THAT(refusal("/model/merges", Json::array({Json::array({"a", "b", "c"})})),
               Contains("model.merges[0]"));
    CHECK_THAT(refusal("/model/merges", Json::array({Json::array({"a", 1})})),
               Contains("model.merges[0]"));
    CHECK_THAT(refusal("/model/merges", "a b"), Contains("model.merges: expected an array"));
    CHECK_THAT(refusal("/model", nullptr), Contains("'model' is missing"));
}

TEST_CASE("added tokens that contradict the vocabulary or each other are refused") {
    CHECK_THAT(refusal("/added_tokens/0/id", 97),
               Contains("token '<s>' has the id 97, which already belongs to 'a' in model.vocab"));
    CHECK_THAT(refusal("/added_tokens/0/content", "a"),
               Contains("token 'a' has id 257 here and 97 in model.vocab"));
    CHECK_THAT(refusal("/added_tokens/0/content", ""), Contains("added_tokens[0].content"));
    CHECK_THAT(refusal("/added_tokens/0/content", std::string(5000, 'x')),
               Contains("1 to 1024 bytes, found 5000"));
    CHECK_THAT(refusal("/added_tokens/0/id", 1LL << 31),
               Contains("added_tokens[0].id: expected an integer from 0"));
    CHECK_THAT(refusal("/added_tokens/0/special", "yes"),
               Contains("added_tokens[0].special: expected true or false"));
    CHECK_THAT(refusal("/added_tokens/1", {{"id", 257}, {"content", "<t>"}}),
               Contains("id 257 is given to both"));
    CHECK_THAT(refusal("/added_tokens/1", {{"id", 258}, {"content", "<s>"}}),
               Contains("added twice"));
    CHECK_THAT(refusal("/added_tokens", 5), Contains("added_tokens: expected an array, found 5"));
}

TEST_CASE("a template that does not contain its text once, or has an unknown token, is refused") {
    const Json text{{"Sequence", {{"id", "A"}}}};
    const Json mark{{"SpecialToken", {{"id", "<s>"}}}};
    const auto post = [&](const Json &single, const Json &ids) {
        return refusal("/post_processor",
                       {{"type", "TemplateProcessing"},
                        {"single", single},
                        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", ids}}}}}});
    };
    CHECK(post({mark, text}, {257}) == "accepted");
    CHECK_THAT(post(Json::array({mark}), {257}),
               Contains("post_processor.single: expected the place of the text"));
    CHECK_THAT(post({text, text}, {257}), Contains("once and no other sequence"));
    CHECK_THAT(post(Json::array({Json{{"Sequence", {{"id", "B"}}}}}), {257}),
               Contains("once and no other sequence"));
    CHECK_THAT(post({mark, text}, {300}), Contains("no token has the id 300"));
    CHECK_THAT(post({mark, text}, std::vector<int>(100, 257)),
               Contains("at most 64 special tokens"));
    CHECK_THAT(post({{{"SpecialToken", {{"id", "<x>"}}}}, text}, {257}),
               Contains("'<x>' is missing"));
}

TEST_CASE("text that is not JSON, or that would exhaust its reader, is refused in one line") {
    CHECK_THAT(refusal(""), Contains("m/tokenizer.json:1:1: not valid JSON"));
    CHECK_THAT(refusal("{\"version\": \n nope}"), Contains("m/tokenizer.json:2:3: "));
    CHECK_THAT(refusal("[]"), Contains("expected a JSON object"));
    CHECK_THAT(refusal("{}"), Contains("'model' is missing"));
    CHECK_THAT(refusal("{\"a\": \"\xFF\"}"), Contains("not valid JSON"));
    CHECK_THAT(refusal("\"" + std::string(100000, 'x')), Contains("not valid JSON"));
    CHECK_THAT(refusal(std::string(1'000'000, '[')), Contains("at most 64 nested levels"));
    std::string many = "[";
    for (int i = 0; i < 4'100'000; ++i) many += "0,1,";
    CHECK_THAT(refusal(many + "0]"), Contains("8000000 values"));
    const std::string whole = good().dump();
    for (std::size_t size = 0; size < whole.size(); size += 97)
        CHECK_THAT(refusal(whole.substr(0, size)), Contains("not valid JSON"));
}

TEST_CASE("a pattern with exponential time on a text ends with an error") {
    Json tree = good();
    tree["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", "(?:a+)+[cd]"}}}, {"behavior", "Isolated"}},
          {{"type", "ByteLevel"}}}}};
    const auto tokenizer = parse(tree.dump());
    CHECK(tokenizer->decode(tokenizer->encode("aab")) ==
          " aab"); // the default of ByteLevel adds a space before the text
    CHECK_THROWS_WITH(tokenizer->encode(std::string(100, 'a') + "b"),
                      Contains("pattern.Regex") && Contains("steps"));
}

TEST_CASE("the ids that end a generation come from all three side files") {
    const std::string text = good().dump();
    const auto ends = [&](std::string_view generation, std::string_view config,
                          std::string_view tokenizer_config) {
        return parse(text, generation, config, tokenizer_config)->end_ids();
    };
    using Ids = std::vector<std::int32_t>;
    CHECK(ends(R"({"eos_token_id": [9, 5, 9]})", R"({"eos_token_id": 7})",
               R"({"eos_token": "<s>"})") == Ids{5, 7, 9, 257});
    CHECK(ends(R"({"eos_token_id": null})", R"({})",
               R"({"eos_token": {"content": "<s>", "lstrip": false}})") == Ids{257});
    CHECK(ends("", R"({"eos_token_id": -1})", "").empty());
    const auto both =
        parse(text, R"({"bos_token_id": 3, "eos_token_id": [4, 6]})", R"({"bos_token_id": 1})");
    CHECK(both->bos_id() == 3);
    CHECK(both->eos_id() == 4);
    CHECK_THROWS_WITH(ends(R"({"eos_token_id": "x"})", "", ""),
                      Contains("m/generation_config.json:1: eos_token_id: expected an integer"));
    CHECK_THROWS_WITH(ends(R"({"eos_token_id": [1, -2]})", "", ""), Contains("eos_token_id[1]"));
    CHECK_THROWS_WITH(ends("", R"([1])", ""), Contains("m/config.json:1: expected a JSON object"));
    CHECK_THROWS_WITH(ends("", "{", ""), Contains("m/config.json:1:2: not valid JSON"));
    CHECK_THROWS_WITH(
        ends("", "", R"({"eos_token": "<none>"})"),
        Contains(
            "m/tokenizer_config.json:1: eos_token: the tokenizer has no added token '<none>'"));
    CHECK_THROWS_WITH(ends("", "", R"({"bos_token": 7})"),
                      Contains("bos_token: expected a string, found 7"));
}

TEST_CASE("a model folder without a valid tokenizer is refused") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(KEEL_BINARY_DIR) / "text_tests_folder";
    fs::remove_all(folder);
    fs::create_directories(folder);
    CHECK_THROWS_WITH(keel::load_tokenizer(folder), Contains("tokenizer.json: no such file"));
    CHECK_THROWS_WITH(keel::load_tokenizer(folder / "nowhere"), Contains("no such file"));
    fs::create_directories(folder / "tokenizer.json");
    CHECK_THROWS_WITH(keel::load_tokenizer(folder), Contains("not a regular file"));
    fs::remove(folder / "tokenizer.json");
    std::ofstream(folder / "tokenizer.json").flush();
    CHECK_THROWS_WITH(keel::load_tokenizer(folder), Contains("the file is empty"));
    std::ofstream(folder / "tokenizer.json") << good().dump();
    CHECK(keel::load_tokenizer(folder)->vocab_size() == 258);
    CHECK(keel::load_tokenizer(folder / "tokenizer.json")->vocab_size() == 258);
    fs::remove_all(folder);
}
