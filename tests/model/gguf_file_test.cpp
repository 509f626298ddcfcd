// Tests of the GGUF container: the content of valid files, and that damaged files are refused with
// the place of the error.

#include "format/ggml_blocks.hpp"
#include "support/error_text.hpp"
#include "support/gguf_bytes.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

const std::string golden = KEEL_SOURCE_DIR "/tests/golden/";

std::string file_refusal(const GgufBytes &file) {
    const std::string bytes = file.bytes();
    return error_text([&] { parse_gguf(bytes); });
}

std::string file_refusal(const std::string &bytes) {
    return error_text([&] { parse_gguf(bytes); });
}

GgufBytes sound() {
    GgufBytes file;
    file.key("general.architecture", "llama").key("a.number", uint32_t{7});
    file.tensor("one", {32, 2}, ggml::f32, std::string(256, 'x'));
    file.tensor("two", {32}, ggml::q8_0, std::string(34, 'y'));
    return file;
}

std::string from_base64(const std::string &text) {
    const auto digit = [](char c) -> uint32_t {
        if (c >= 'A' && c <= 'Z') return static_cast<uint32_t>(c - 'A');
        if (c >= 'a' && c <= 'z') return static_cast<uint32_t>(c - 'a' + 26);
        if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0' + 52);
        return c == '+' ? 62 : 63;
    };
    std::string out;
    uint32_t bits = 0, held = 0;
    for (const char c : text) {
        if (c == '=') break;
        bits = bits << 6 | digit(c);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out.push_back(static_cast<char>(bits >> held & 255));
    }
    return out;
}

} // namespace

TEST_CASE("a GGUF file of the gguf package is read with every type of metadata") {
    const GgufFile file(std::filesystem::path(golden + "mini_gguf.gguf"));
    CHECK(file.version() == 3);
    CHECK(file.text("general.architecture") == "llama");
    CHECK(file.integer("test.u8") == 200);
    CHECK(file.integer("test.i8") == -100);
    CHECK(file.integer("test.u16") == 60000);
    CHECK(file.integer("test.i16") == -30000);
    CHECK(file.integer("test.u32") == 4'000'000'000);
    CHECK(file.integer("test.i32") == -2'000'000'000);
    CHECK(file.integer("test.i64") == -(int64_t{1} << 62));
    CHECK(file.number("test.u64", 0, 1e30) == 0x1p63);
    CHECK(file.number("test.f32", 0, 1) == static_cast<double>(0.1F));
    CHECK(file.number("test.f64", 0, 1) == 0.1);
    CHECK(file.boolean("test.bool") == true);
    CHECK(file.numbers("test.floats", 2) == std::vector<float>{0.5F, -1.25F});
    const auto tokens = file.texts("tokenizer.ggml.tokens", 1000);
    REQUIRE(tokens->size() == 48);
    CHECK((*tokens)[3] == "t3");
    CHECK(tokens->back() == "\u00e9\u4e16");
    CHECK(file.integers("tokenizer.ggml.token_type", 48)->size() == 48);
    CHECK(file.array_size("tokenizer.ggml.merges") == 2);
    CHECK_FALSE(file.text("none").has_value());
    REQUIRE(file.tensors().size() == 17);
    CHECK(file.tensors()[0].name == "token_embd.weight");
    CHECK(file.tensors()[0].type->name == "Q8_0");
    CHECK(file.tensors()[0].shape == std::vector<int64_t>{48, 64});
}

TEST_CASE("a moved GGUF file object still finds its keys, and files from bytes and from a path are "
          "equal") {
    const std::string bytes = sound().bytes();
    std::vector<GgufFile> files;
    files.push_back(parse_gguf(bytes));
    files.push_back(parse_gguf(bytes));
    for (const GgufFile &file : files) {
        CHECK(file.integer("a.number") == 7);
        CHECK(file.tensors()[1].offset - file.tensors()[0].offset == 256);
        CHECK(file.raw(*file.find("a.number")).size() == 4);
    }
    CHECK(parse_gguf(GgufBytes{}.bytes()).tensors().empty());
    GgufBytes two = sound();
    two.version = 2;
    CHECK(parse_gguf(two.bytes()).version() == 2);
    const TempFolder folder;
    CHECK(is_gguf_file(folder.write("model", bytes)));
    CHECK_FALSE(is_gguf_file(folder.write("text", "GGU")));
    CHECK_FALSE(is_gguf_file(folder.path()));
}

TEST_CASE("a file cut short anywhere is refused") {
    const std::string bytes = sound().bytes();
    for (size_t length = 0; length < bytes.size(); ++length) {
        const std::string part = bytes.substr(0, length);
        INFO(length);
        CHECK_THROWS_AS(parse_gguf(part), Error);
    }
    CHECK_THAT(file_refusal(bytes.substr(0, 2)),
               Contains("m.gguf: magic: expected 4 bytes at offset 0, found only 2"));
    CHECK_THAT(file_refusal(bytes.substr(0, bytes.size() - 1)),
               Contains("tensor 'two': 34 bytes at offset 256 do not fit into the file's 289 data "
                        "bytes; the file is cut short"));
}

TEST_CASE("a file that is not GGUF of a known version is refused") {
    GgufBytes file = sound();
    file.magic = "GGML";
    CHECK_THAT(file_refusal(file),
               Contains("expected a GGUF file, which begins with 'GGUF', found 'GGML'"));
    file = sound();
    for (const uint32_t version : {0U, 1U, 4U, 0xFFFFFFFFU}) {
        file.version = version;
        CHECK_THAT(file_refusal(file),
                   Contains("expected GGUF version 2 or 3, found " + std::to_string(version)));
    }
    file.version = 0x03000000;
    CHECK_THAT(file_refusal(file), Contains("big-endian"));
}

TEST_CASE("absurd counts and lengths are refused before anything is allocated") {
    GgufBytes file = sound();
    file.tensor_count = uint64_t{1} << 60;
    CHECK_THAT(file_refusal(file), Contains("number of tensors: expected at most"));
    file = sound();
    file.key_count = UINT64_MAX;
    CHECK_THAT(file_refusal(file), Contains("number of metadata keys: expected at most"));
    const std::string front = GgufBytes{}.bytes().substr(0, 8) + GgufBytes::number(uint64_t{0}) +
                              GgufBytes::number(uint64_t{1});
    CHECK_THAT(file_refusal(front + GgufBytes::number(UINT64_MAX) + std::string(100, 'k')),
               Contains("a metadata key: expected 18446744073709551615 bytes"));
    for (const uint32_t element : {0U, 8U, 10U}) { // u8, string, u64
        file = GgufBytes{};
        file.raw_key("k", 9, GgufBytes::number(element) + GgufBytes::number(uint64_t{1} << 60));
        CHECK_THAT(file_refusal(file),
                   Contains("metadata key 'k': expected 1152921504606846976 values"));
    }
    file = GgufBytes{};
    file.raw_key("k", 8, GgufBytes::number(uint64_t{1} << 61));
    CHECK_THAT(file_refusal(file),
               Contains("metadata key 'k': expected 2305843009213693952 bytes"));
    file = GgufBytes{};
    file.key(std::string(70000, 'k'), uint32_t{1});
    CHECK_THAT(file_refusal(file),
               Contains("a metadata key: expected at most 65536 bytes of text, found 70000"));
}

TEST_CASE("metadata with unknown types, repeated keys or invalid bools is refused") {
    GgufBytes file;
    file.raw_key("k", 13, "xxxx");
    CHECK_THAT(file_refusal(file), Contains("metadata key 'k': unknown value type 13"));
    file = GgufBytes{};
    file.raw_key("k", 9, GgufBytes::number(uint32_t{9}) + GgufBytes::number(uint64_t{0}));
    CHECK_THAT(file_refusal(file), Contains("arrays of arrays are not supported"));
    file = GgufBytes{};
    file.key("k", uint32_t{1}).key("k", uint32_t{1});
    CHECK_THAT(file_refusal(file), Contains("metadata key 'k': the key occurs twice"));
    file = GgufBytes{};
    file.raw_key("k", 7, "\x02");
    CHECK_THAT(file_refusal(file), Contains("expected 0 or 1 for a bool, found 2"));
    file = GgufBytes{};
    file.key("", uint32_t{1});
    CHECK_THAT(file_refusal(file), Contains("a metadata key is empty"));
    file = GgufBytes{};
    file.key("\x1b[2J\xff", uint32_t{1}).key("\x1b[2J\xff", uint32_t{1});
    CHECK_THAT(file_refusal(file), Contains(R"('\x1B[2J\xFF')", Catch::CaseSensitive::No));
    for (const uint32_t alignment : {0U, 24U, 1U << 30}) {
        file = GgufBytes{};
        file.key("general.alignment", alignment);
        CHECK_THAT(file_refusal(file), Contains("metadata key 'general.alignment': expected"));
    }
}

TEST_CASE("tensors outside the file, misaligned or overlapping are refused") {
    const std::vector<std::pair<std::function<void(GgufBytes &)>, std::string>> cases = {
        {[](GgufBytes &f) { f.raw_tensor("x", {32}, ggml::f32, UINT64_MAX - 31); },
         "do not fit into the file's"},
        {[](GgufBytes &f) { f.raw_tensor("x", {32}, ggml::f32, 290); },
         "offset: expected a multiple of 32, found 290"},
        {[](GgufBytes &f) { f.raw_tensor("x", {32}, ggml::f32, 128); },
         "the data overlaps the data of tensor 'one'"},
        {[](GgufBytes &f) { f.raw_tensor("x", {32}, ggml::f32, 0); }, "overlaps"},
        {[](GgufBytes &f) { f.raw_tensor("one", {1}, ggml::f32, 0); }, "tensor 'one' occurs twice"},
        {[](GgufBytes &f) { f.raw_tensor("x", {32}, 4, 0); }, "unknown tensor type 4"},
        {[](GgufBytes &f) { f.raw_tensor("x", {32}, 0xFFFFFFFF, 0); },
         "unknown tensor type 4294967295"},
        {[](GgufBytes &f) { f.raw_tensor("x", {0}, ggml::f32, 0); },
         "expected sizes of 1 or more, found 0"},
        {[](GgufBytes &f) { f.raw_tensor("x", {UINT64_MAX}, ggml::f32, 0); },
         "sizes of 1 or more, found -1"},
        {[](GgufBytes &f) {
             f.raw_tensor("x", {1ULL << 32, 1ULL << 32}, ggml::f32, 0);
         },
         "number of elements does not fit into 64 bits"},
        {[](GgufBytes &f) { f.raw_tensor("x", {1ULL << 62}, ggml::f32, 0); },
         "number of bytes does not fit into 64 bits"},
        {[](GgufBytes &f) { f.raw_tensor("x", {33}, ggml::q4_0, 0); },
         "rows of 33 elements do not consist of whole Q4_0 blocks of 32 elements"},
        {[](GgufBytes &f) {
             f.raw_tensor("x", {1, 1, 1, 1, 1}, ggml::f32, 0);
         },
         "expected at most 4 dimensions, found 5"},
        {[](GgufBytes &f) { f.raw_tensor("", {1}, ggml::f32, 0); }, "a tensor has no name"},
        {[](GgufBytes &f) { f.raw_tensor(std::string(300, 'n'), {1}, ggml::f32, 0); },
         "expected at most 256 bytes of text"},
    };
    for (const auto &[breaks, message] : cases) {
        GgufBytes file = sound();
        breaks(file);
        CHECK_THAT(file_refusal(file), Contains(message));
    }
}

TEST_CASE("a key of another type or out of range is an error that names it") {
    GgufBytes bytes = sound();
    bytes.key("f", 0.5F).key("list", std::vector<std::string>{"a", "b"});
    const std::string text = bytes.bytes();
    const GgufFile file = parse_gguf(text);
    const auto message = [](const auto &action) { return error_text(action); };
    CHECK_THAT(message([&] { (void)file.text("a.number"); }),
               Equals("m.gguf: metadata key 'a.number': expected a string, found 7"));
    CHECK_THAT(message([&] { (void)file.integer("a.number", 8, 9); }),
               Contains("expected an integer from 8 to 9, found 7"));
    CHECK_THAT(message([&] { (void)file.integer("f"); }), Contains("found 0.5"));
    CHECK_THAT(message([&] { (void)file.number("general.architecture", 0, 1); }),
               Contains("found \"llama\""));
    CHECK_THAT(message([&] { (void)file.boolean("f"); }),
               Contains("expected true or false, found 0.5"));
    CHECK_THAT(message([&] { (void)file.text("list"); }), Contains("found an array of 2 string"));
    CHECK_THAT(message([&] { (void)file.texts("list", 1); }),
               Contains("at most 1 strings, found an array of 2"));
    CHECK_THAT(message([&] { (void)file.texts("f", 1); }),
               Contains("expected an array of strings, found 0.5"));
    CHECK_THAT(message([&] { (void)file.integers("list", 9); }), Contains("expected integers"));
    CHECK_THAT(message([&] { (void)file.numbers("list", 9); }),
               Contains("numbers, found an array of 2 string"));
}

TEST_CASE("block types decode to the same bits as with the gguf package") {
    std::ifstream in(golden + "ggml_blocks.json");
    for (const auto &item : nlohmann::json::parse(in)) {
        const auto id = item.at("id").get<uint32_t>();
        INFO(item.at("type"));
        REQUIRE(can_decode_ggml(id));
        const std::string blocks = from_base64(item.at("blocks")),
                          expected = from_base64(item.at("decoded"));
        std::vector<float> values(item.at("values").get<size_t>());
        REQUIRE(expected.size() == values.size() * sizeof(float));
        REQUIRE(blocks.size() ==
                values.size() / find_ggml_type(id)->block * find_ggml_type(id)->bytes);
        const std::string unaligned = "x" + blocks;
        decode_ggml_blocks(id, unaligned.data() + 1, values.data(), values.size());
        CHECK(std::memcmp(values.data(), expected.data(), expected.size()) == 0);
    }
    CHECK_FALSE(can_decode_ggml(ggml::q8_0));
    CHECK_FALSE(can_decode_ggml(10));
}
