// Compares SentencePiece-style BPE with SentencePiece and Hugging Face tokenizers, by golden files
// (golden/make_spm_golden.py).
#include "base/error.hpp"
#include "format/gguf_writer.hpp"
#include "text/golden_text.hpp"
#include "text/text_stream.hpp"
#include "text/tokenizer/tokenizer.hpp"
#include "text/tokenizer/tokenizer_parsers.hpp"
#include "text/utf8.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

using Catch::Matchers::Contains;
using keel::Tokenizer;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

namespace {

const std::string spm_dir = std::string(KEEL_SOURCE_DIR) + "/tests/text/golden/spm/";

struct Vector {
    std::string text;
    bool has_control = false;
    Ids library;           // ids of the SentencePiece library
    std::vector<Ids> json; // ids of tokenizer.json, then of its variants
    std::string decoded;
};

const std::vector<Vector> &vectors() {
    static const std::vector<Vector> all = [] {
        std::vector<Vector> rows;
        std::istringstream lines(read_text(spm_dir + "vectors.txt"));
        for (std::string line; std::getline(lines, line);) {
            std::vector<std::string> fields;
            std::istringstream parts(line);
            for (std::string field; std::getline(parts, field, '\t');) fields.push_back(field);
            Vector row;
            row.text = Json::parse(fields.at(0)).get<std::string>();
            row.has_control = fields[1] == "-";
            if (!row.has_control) row.library = unpack(fields[1]);
            Ids last = row.library;
            for (std::size_t i = 2; i + 1 < fields.size(); ++i) {
                if (fields[i] != "=") last = unpack(fields[i]);
                row.json.push_back(last);
            }
            row.decoded =
                fields.back() == "=" ? row.text : Json::parse(fields.back()).get<std::string>();
            rows.push_back(std::move(row));
        }
        return rows;
    }();
    return all;
}

std::unique_ptr<Tokenizer> spm_from_json(const Json &tree) {
    const std::string text = tree.dump();
    return keel::parse_tokenizer({text, {}, {}, {}, "m"});
}

std::unique_ptr<Tokenizer> from_model(std::string_view bytes, std::string_view config = {},
                                      std::string_view added = {}) {
    return keel::parse_tokenizer({{}, config, {}, {}, "m", bytes, added});
}

const Json &spm_json() {
    static const Json tree = Json::parse(read_text(spm_dir + "tokenizer.json"));
    return tree;
}

Json patched(const Json &patch) {
    Json tree = spm_json();
    for (const auto &[key, value] : patch.items())
        if (key == "model")
            tree[key].update(value);
        else
            tree[key] = value;
    return tree;
}

const Tokenizer &spm_model() {
    static const std::string bytes = read_text(spm_dir + "tokenizer.model");
    static const std::unique_ptr<Tokenizer> tokenizer = from_model(bytes);
    return *tokenizer;
}

// The vocabulary of tokenizer.model as a GGUF file. `change` removes or damages parts of it.
struct GgufVocab {
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<std::int32_t> types;
};

GgufVocab gguf_vocab() {
    const std::string bytes = read_text(spm_dir + "tokenizer.model");
    GgufVocab out;
    for (const auto &piece : keel::parse_spm_model(bytes, "m").pieces) {
        out.tokens.emplace_back(piece.text);
        out.scores.push_back(piece.score);
        out.types.push_back(static_cast<std::int32_t>(piece.type));
    }
    return out;
}

std::filesystem::path write_gguf(const GgufVocab &vocab, const std::string &name) {
    const auto path = std::filesystem::path(KEEL_BINARY_DIR) / name;
    keel::GgufWriter out(path);
    out.add("general.architecture", "llama");
    out.add("tokenizer.ggml.model", "llama");
    out.add("tokenizer.ggml.tokens", vocab.tokens);
    out.add("tokenizer.ggml.scores", vocab.scores);
    if (!vocab.types.empty()) out.add("tokenizer.ggml.token_type", vocab.types);
    out.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    out.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    out.begin();
    out.finish();
    return path;
}

void check_ids(const Tokenizer &tokenizer, const std::string &text, const Ids &expected,
               const std::string &what) {
    const Ids ids = tokenizer.encode(text, false);
    if (ids == expected) return;
    INFO(what << ": " << Json(text).dump());
    CHECK(ids == expected);
}

std::string streamed(const Tokenizer &tokenizer, const Ids &ids, keel::DecodeOptions options) {
    keel::TextStream stream(tokenizer, {}, options);
    std::string out;
    for (const std::int32_t id : ids) {
        const std::string shown = stream.push(id);
        if (!keel::is_valid_utf8(shown)) FAIL("a character was cut");
        out += shown;
    }
    return out + stream.finish();
}

} // namespace

TEST_CASE("tokenizer.model gives SentencePiece's ids and its text") {
    CHECK(vectors().size() > 400);
    for (const Vector &row : vectors()) {
        if (row.has_control) continue;
        check_ids(spm_model(), row.text, row.library, "tokenizer.model");
        if (spm_model().decode(row.library) != row.decoded) {
            INFO(Json(row.text).dump());
            CHECK(spm_model().decode(row.library) == row.decoded);
        }
    }
    CHECK(spm_model().bos_id() == 1);
    CHECK(spm_model().end_ids() == Ids{2});
    CHECK(spm_model().encode("a") == Ids{1, 263});
    CHECK(spm_model().info().kind == "SentencePiece BPE");
}

TEST_CASE("both forms of tokenizer.json give the ids of Hugging Face tokenizers") {
    std::vector<std::pair<std::string, Json>> forms{{"as it is", Json::object()}};
    // The variants have the order of the file, which is also the order of the fields.
    const auto variants = nlohmann::ordered_json::parse(read_text(spm_dir + "variants.json"));
    for (const auto &[name, patch] : variants.items())
        forms.emplace_back(name, Json::parse(patch.dump()));
    for (std::size_t i = 0; i < forms.size(); ++i) {
        const auto tokenizer = spm_from_json(patched(forms[i].second));
        for (const Vector &row : vectors())
            check_ids(*tokenizer, row.text, row.json.at(i), forms[i].first);
    }
    const auto tokenizer = spm_from_json(spm_json());
    for (const Vector &row : vectors())
        if (!row.has_control) CHECK(tokenizer->decode(row.library) == row.decoded);
    CHECK(tokenizer->encode("a") == Ids{1, 263}); // the tokenizer's template adds the begin token
}

TEST_CASE("the same vocabulary in a GGUF file gives the same ids") {
    GgufVocab vocab = gguf_vocab();
    const auto path = write_gguf(vocab, "spm_test.gguf");
    const auto tokenizer = keel::load_tokenizer(path);
    for (const Vector &row : vectors()) check_ids(*tokenizer, row.text, row.json.front(), "gguf");
    CHECK(tokenizer->encode("a") == Ids{1, 263});
    CHECK(tokenizer->eos_id() == 2);
    CHECK(tokenizer->find_token("</s>") == 2);
    CHECK(tokenizer->kind(3) == keel::TokenKind::added);
    std::filesystem::remove(path);
}

TEST_CASE("streamed text equals decoded text, including byte pieces") {
    const auto json = spm_from_json(spm_json());
    for (const Tokenizer *tokenizer : {&spm_model(), static_cast<const Tokenizer *>(json.get())}) {
        for (const keel::DecodeOptions options :
             {keel::DecodeOptions{}, keel::DecodeOptions{.continues = true},
              keel::DecodeOptions{.skip_special = false}}) {
            for (const Vector &row : vectors()) {
                const Ids ids = tokenizer->encode(row.text);
                REQUIRE(streamed(*tokenizer, ids, options) == tokenizer->decode(ids, options));
            }
            std::mt19937 random(3);
            for (int round = 0; round < 300; ++round) {
                Ids ids;
                for (int k = 0; k < 20; ++k)
                    ids.push_back(
                        static_cast<std::int32_t>(random() % (round % 2 == 0 ? 1500 : 300)));
                REQUIRE(streamed(*tokenizer, ids, options) == tokenizer->decode(ids, options));
            }
        }
    }
}

TEST_CASE("the first space of a text is added by SentencePiece, that of a continuation is not") {
    const Ids ids = spm_model().encode("the king", false);
    CHECK(spm_model().decode(ids) == "the king");
    CHECK(spm_model().decode(ids, {.continues = true}) == " the king");
    CHECK(spm_model().decode(spm_model().encode("  x", false)) == "  x");
    CHECK(spm_model().decode(spm_model().encode("the king"), {.skip_special = false}) ==
          "<s> the king");
    // Text that continues a sequence gets neither a begin token nor a space.
    const Ids whole = spm_model().encode("the king", false);
    const Ids rest = spm_model().encode(" king", {.continues = true});
    CHECK(Ids(whole.end() - static_cast<std::ptrdiff_t>(rest.size()), whole.end()) == rest);
    const auto first = spm_from_json(
        patched(Json::parse(read_text(spm_dir + "variants.json")).at("metaspace, first")));
    CHECK(first->encode("x", {.continues = true}) != first->encode("x", false));
}

TEST_CASE("text of users cannot become a special token, even across the borders of parts") {
    const auto tokenizer = spm_from_json(spm_json());
    const auto encode = [&](std::vector<keel::TextPart> parts) {
        return tokenizer->encode(parts, {.add_special = false});
    };
    const auto has = [](const Ids &ids, std::int32_t id) {
        return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    CHECK(encode({{"a</s>", true}}) == tokenizer->encode("a</s>", false));
    CHECK_FALSE(has(encode({{"a</s>", false}}), 2));
    CHECK_FALSE(has(encode({{"a</", false}, {"s>", true}}), 2));
    CHECK_FALSE(has(encode({{"a</", true}, {"s>", false}}), 2));
    CHECK(has(encode({{"a</", true}, {"s>", true}}), 2));
    CHECK(has(encode({{"a</", false}, {"</s>", true}}), 2));
    CHECK(tokenizer->decode(encode({{"a</s>b", false}})) == "a</s>b");
    // The parts are encoded as one text: a token may cross the border.
    CHECK(encode({{"the ki", false}, {"ng", true}}) == tokenizer->encode("the king", false));
    CHECK(encode({{"a\xE6\x97", false}, {"\xA5", true}}) ==
          tokenizer->encode("a\uFFFD\uFFFD", false)); // each byte becomes its own character
    CHECK(encode({}).empty());
}

TEST_CASE("invalid bytes and long words are tokenized") {
    CHECK(spm_model().encode("a\xF0\x9F\x98 b", false) == spm_model().encode("a\uFFFD b", false));
    std::string word;
    while (word.size() < 300'000) word += "onceuponatimetherewasamillersdaughter";
    CHECK(spm_model().decode(spm_model().encode(word, false)) == word);
    const std::string spaces(300'000, ' ');
    CHECK(spm_model().decode(spm_model().encode(spaces, false)) == spaces);
}

TEST_CASE("files next to a tokenizer.model add tokens and define the begin and end of a text") {
    const std::string bytes = read_text(spm_dir + "tokenizer.model");
    const auto chat = from_model(
        bytes, R"({"added_tokens_decoder": {"1500": {"content": "<|im_start|>", "special": true}},
        "add_bos_token": false, "add_eos_token": true, "legacy": false,
        "eos_token": "<|im_start|>"})",
        R"({"<|im_start|>": 1500, "word": 1501})");
    CHECK(chat->vocab_size() == 1502);
    CHECK(chat->encode("<|im_start|>") == Ids{1500, 2});
    CHECK(chat->kind(1500) == keel::TokenKind::special);
    CHECK(chat->kind(1501) == keel::TokenKind::added);
    CHECK(chat->eos_id() == 1500);
    // Without "legacy", there is a space before the text, but not before its later parts.
    CHECK(chat->encode("</s>a", {.add_special = false}) ==
          Ids{2, spm_model().encode("xa", false).back()});
    CHECK_THROWS_WITH(from_model(bytes, R"({"added_tokens_decoder": {"x": {"content": "y"}}})"),
                      Contains("m/tokenizer_config.json:1: added_tokens_decoder: expected ids"));
    CHECK_THROWS_WITH(from_model(bytes, {}, R"({"y": 400})"),
                      Contains("m/tokenizer.model: added token 'y' has the id 400"));
    CHECK_THROWS_WITH(from_model(bytes, {}, R"({"y": -1})"),
                      Contains("m/added_tokens.json:1: y: expected an integer"));
}

namespace {

// A ModelProto that is written byte by byte.
std::string varint(std::uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    return out + static_cast<char>(value);
}
std::string field(unsigned number, std::string_view bytes) {
    return varint(number * 8 + 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(unsigned number, std::uint64_t value) {
    return varint(number * 8) + varint(value);
}
std::string piece(std::string_view text, unsigned type, std::string score = std::string(4, '\0')) {
    return field(1, field(1, text) + varint(2 * 8 + 5) + score + field(3, type));
}
const std::string bpe_spec = field(2, field(3, 2U));
const std::string no_space_rules = field(3, field(3, 0U) + field(4, 0U));

} // namespace

TEST_CASE("an unsupported or damaged tokenizer.model is refused with name and place") {
    const std::string a = piece("a", 1);
    CHECK(from_model(a + bpe_spec + no_space_rules)->encode("aab") ==
          Ids{0, 0}); // b has no piece, and there is no unknown token
    CHECK_THROWS_WITH(
        from_model(a),
        Contains("m/tokenizer.model: a SentencePiece model of the type Unigram is not supported"));
    CHECK_THROWS_WITH(from_model(a + field(2, field(3, 77U))), Contains("of the type unknown"));
    CHECK_THROWS_WITH(from_model(a + bpe_spec + field(3, field(1, "nmt_nfkc") + field(2, "xx"))),
                      Contains("the normalization 'nmt_nfkc' is not supported"));
    CHECK_THROWS_WITH(from_model(a + field(2, field(3, 2U) + field(24, 1U))),
                      Contains("treat_whitespace_as_suffix"));
    CHECK_THROWS_WITH(from_model(a + bpe_spec + field(3, field(5, 0U))), Contains("U+2581"));
    CHECK_THROWS_WITH(from_model(bpe_spec), Contains("there are no pieces"));
    CHECK_THROWS_WITH(from_model(piece("\xFF", 1) + bpe_spec),
                      Contains("piece 0") && Contains("not valid UTF-8"));
    CHECK_THROWS_WITH(from_model(piece("a", 1, std::string("\0\0\xC0\x7F", 4)) + bpe_spec),
                      Contains("not a finite number"));
    CHECK_THROWS_WITH(from_model(piece("a", 9) + bpe_spec),
                      Contains("piece 0 has the unknown type 9"));
    CHECK_THROWS_WITH(from_model(piece("<0xg0>", 6) + bpe_spec), Contains("<0x00> to <0xFF>"));
    CHECK_THROWS_WITH(from_model(piece(std::string(5000, 'x'), 3) + bpe_spec),
                      Contains("at most 1024 bytes"));
    CHECK_THROWS_WITH(from_model(piece(std::string(100'000, 'x'), 1) + bpe_spec),
                      Contains("longer than those of any"));
    CHECK_THROWS_WITH(from_model("{\"version\": 1}"), Contains("protobuf"));
    CHECK_THROWS_WITH(from_model(varint(8 + 2) + varint(1ULL << 60)), Contains("cut short"));
    CHECK_THROWS_WITH(from_model(std::string(20, '\xFF')), Contains("more than 64 bits"));
    const std::string whole = read_text(spm_dir + "tokenizer.model");
    for (std::size_t size = 1; size < whole.size(); size += 101)
        CHECK_THROWS_AS(from_model(std::string_view(whole).substr(0, size)), keel::Error);
}

TEST_CASE("remove_extra_whitespaces leaves one space between words and none around them") {
    const std::string model = piece("a", 1) + piece("\u2581", 1) + bpe_spec;
    const auto tokenizer = from_model(model + field(3, field(4, 1U)));
    CHECK(tokenizer->encode("  a   a ") == Ids{1, 0, 1, 0});
    CHECK(tokenizer->encode("   ").empty());
    CHECK(from_model(model + field(3, field(4, 0U)))->encode(" a ") == Ids{1, 1, 0, 1});
}

TEST_CASE("contradicting vocabularies in GGUF files are refused with the key") {
    const auto refusal = [](const GgufVocab &vocab) {
        const auto path = write_gguf(vocab, "spm_test_bad.gguf");
        std::string message = "accepted";
        try {
            (void)keel::load_tokenizer(path);
        } catch (const keel::Error &error) {
            message = error.what();
        }
        std::filesystem::remove(path);
        return message;
    };
    const GgufVocab good = gguf_vocab();
    CHECK(refusal(good) == "accepted");
    GgufVocab bad = good;
    bad.scores.pop_back();
    CHECK_THAT(refusal(bad), Contains("tokenizer.ggml.scores") &&
                                 Contains("expected one number per token (1500), found 1499"));
    bad = good;
    bad.types.pop_back();
    CHECK_THAT(refusal(bad),
               Contains("tokenizer.ggml.token_type") && Contains("expected one number per token"));
    bad.types.assign(1500, 7);
    CHECK_THAT(refusal(bad), Contains("tokenizer.ggml.token_type"));
    bad = good;
    bad.types.clear(); // then bytes are recognized by their text
    CHECK(refusal(bad) == "accepted");
    bad = good;
    bad.tokens[300] = "\xFF";
    CHECK_THAT(refusal(bad), Contains("piece 300"));
    bad = {{"a", "b"}, {0, 0}, {1, 1}};
    CHECK_THAT(refusal(bad), Contains("tokenizer.ggml.eos_token_id"));
}
