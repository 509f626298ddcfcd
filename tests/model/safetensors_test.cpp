#include "model/safetensors.hpp"
#include "platform/mapped_file.hpp"
#include "platform/memory.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"

#include <catch2/catch.hpp>

#include <random>

using namespace keel;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using keel::test::error_text;
using keel::test::safetensors_bytes;
using keel::test::TempFolder;
using keel::test::WrittenTensor;

namespace {

SafetensorsHeader parse_tensors(std::string_view file) {
    return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string tensors_refusal(std::string_view file) {
    return error_text([&] { parse_tensors(file); });
}

// Returns the error for a file with one header and 64 bytes of data.
std::string refusal_of_header(const std::string &header) {
    const std::string text = tensors_refusal(safetensors_bytes(header, std::string(64, 'd')));
    CHECK_THAT(text, StartsWith("m.safetensors: "));
    return text;
}

std::string tensor_entry(const std::string &dtype, const std::string &shape,
                         const std::string &offsets) {
    return R"({"w": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
           offsets + "}}";
}

std::string refusal_of_tensor(const std::string &dtype, const std::string &shape,
                              const std::string &offsets) {
    const std::string text = refusal_of_header(tensor_entry(dtype, shape, offsets));
    CHECK_THAT(text, Contains("tensor 'w'") || Contains("header: w."));
    return text;
}

std::vector<WrittenTensor> two_tensors() {
    return {{"a", {2, 3}, {1, 2, 3, 4, 5, 6}, KEEL_DTYPE_F32},
            {"b.weight", {4}, {7, 8, 9, 10}, KEEL_DTYPE_BF16}};
}

} // namespace

TEST_CASE("a valid file gives its tensors in the order of their data") {
    const TempFolder folder;
    write_safetensors(folder / "m.safetensors", two_tensors());
    const SafetensorsFile file(folder / "m.safetensors");
    REQUIRE(file.tensors().size() == 2);
    const TensorInfo &a = file.tensors()[0];
    CHECK(a.name == "a");
    CHECK(a.dtype == KEEL_DTYPE_F32);
    CHECK(a.shape == std::vector<int64_t>{2, 3});
    CHECK(a.elements() == 6);
    CHECK(a.bytes == 24);
    CHECK(a.offset % 8 == 0);
    const TensorInfo *b = file.find("b.weight");
    REQUIRE(b != nullptr);
    CHECK(b->dtype_name == "BF16");
    CHECK(b->offset == a.offset + 24);
    CHECK(b->offset + b->bytes == file.file().size());
    CHECK(file.find("c") == nullptr);
    REQUIRE(file.metadata().size() == 1);
    CHECK(file.metadata()[0] == std::pair<std::string, std::string>{"format", "pt"});
    float value = 0;
    std::memcpy(&value, file.file().bytes().data() + a.offset + 4, 4);
    CHECK(value == 2.0F);
}

TEST_CASE("every prefix of a valid file is an error, never a crash") {
    const std::string whole = safetensors_bytes(two_tensors());
    CHECK(parse_tensors(whole).tensors.size() == 2);
    for (size_t length = 0; length < whole.size(); ++length) {
        // The part is its own allocation, so that AddressSanitizer finds a read after its end.
        const std::vector<char> part(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(length));
        REQUIRE_THROWS_AS(parse_tensors({part.data(), part.size()}), Error);
    }
}

TEST_CASE("a valid file with any changed byte is read or refused") {
    const std::string whole = safetensors_bytes(two_tensors());
    std::mt19937 random(5);
    for (size_t at = 0; at < whole.size(); ++at) {
        for (int i = 0; i < 8; ++i) {
            std::string changed = whole;
            changed[at] = static_cast<char>(random());
            try {
                for (const TensorInfo &tensor : parse_tensors(changed).tensors) {
                    REQUIRE(tensor.offset <= changed.size());
                    REQUIRE(tensor.bytes <= changed.size() - tensor.offset);
                }
            } catch (const Error &) {
            }
        }
    }
}

TEST_CASE("an impossible header length is refused before anything is allocated") {
    CHECK_THAT(tensors_refusal(""), Contains("at least 8 bytes, found 0"));
    CHECK_THAT(tensors_refusal("1234567"), Contains("at least 8 bytes, found 7"));
    const uint64_t before = peak_resident_bytes();
    CHECK_THAT(tensors_refusal(std::string("\0\0\0\0\0\0\0\x10", 8) + "{}"),
               Contains("header length") && Contains("1152921504606846976"));
    CHECK_THAT(tensors_refusal(std::string("\0\xe1\xf5\x05\0\0\0\0", 8) + "{}"),
               Contains("header length: expected 100000000 bytes, but only 2 bytes follow; the "
                        "file is cut short"));
    CHECK_THAT(tensors_refusal(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8) + "{}"),
               Contains("expected at most 100000000"));
    CHECK(peak_resident_bytes() - before < (64U << 20));
}

TEST_CASE("headers that are not safetensors headers are refused with what is wrong and where") {
    CHECK_THAT(refusal_of_header("{\"w\": [}"),
               Contains("m.safetensors: header: byte 8: not valid JSON"));
    CHECK_THAT(refusal_of_header(""), Contains("not valid JSON"));
    CHECK_THAT(refusal_of_header("[]"), Contains("expected a JSON object, found an array of 0"));
    CHECK_THAT(refusal_of_header(R"({"w": 5})"),
               Contains("header: w: expected an object, found 5"));
    CHECK_THAT(refusal_of_header(R"({"w": {"shape": [], "data_offsets": [0, 4]}})"),
               Contains("w: 'dtype' is missing"));
    CHECK_THAT(refusal_of_header(R"({"w": {"dtype": "F32", "data_offsets": [0, 4]}})"),
               Contains("w: 'shape' is missing"));
    CHECK_THAT(refusal_of_header(R"({"w": {"dtype": "F32", "shape": [1]}})"),
               Contains("w: 'data_offsets' is missing"));
    CHECK_THAT(refusal_of_header(R"({"w": {"dtype": 4, "shape": [1], "data_offsets": [0, 4]}})"),
               Contains("dtype: expected a string"));
    CHECK_THAT(refusal_of_header(R"({"__metadata__": {"format": 5}})"),
               Contains("__metadata__.format: expected a string"));
    CHECK_THAT(refusal_of_header(R"({"__metadata__": "x"})"), Contains("expected an object"));
    CHECK_THAT(refusal_of_header("{\"w\xff\": 5}"),
               Contains("not valid JSON") && Contains("UTF-8"));
    CHECK_THAT(refusal_of_header("{\"w\": " + std::string(50000, '[')), Contains("nested levels"));
    CHECK_THAT(
        refusal_of_header(
            R"({"w": {"dtype": "F32", "dtype": "F16", "shape": [], "data_offsets": [0, 4]}})"),
        Contains("'dtype' occurs twice"));
    const std::string entry = R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
    CHECK_THAT(refusal_of_header(R"({"w": )" + entry + R"(, "w": )" + entry + "}"),
               Contains("'w' occurs twice"));
}

TEST_CASE("offsets must be in the file, in order, and match the shape") {
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "[0, 65]"),
               Contains("end 65 is larger than the file's 64 data bytes"));
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "[8, 0]"), Contains("begin 8 is larger than end 0"));
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "[-8, 0]"),
               Contains("data_offsets[0]: expected an integer from 0") && Contains("found -8"));
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "[0, 18446744073709551615]"),
               Contains("data_offsets"));
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "[0, 1e3]"), Contains("found 1000.0"));
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "[0]"),
               Contains("expected [begin, end], found an array of 1"));
    CHECK_THAT(refusal_of_tensor("F32", "[2]", "7"), Contains("expected [begin, end], found 7"));
    CHECK_THAT(refusal_of_tensor("F32", "[3]", "[0, 8]"),
               Contains("shape [3] of F32 needs 12 bytes, data_offsets give 8"));
    CHECK_THAT(refusal_of_tensor("F16", "[]", "[0, 4]"), Contains("shape [] of F16 needs 2 bytes"));
    CHECK_THAT(refusal_of_tensor("I64", "[3]", "[0, 12]"),
               Contains("shape [3] of I64 needs 24 bytes"));
}

TEST_CASE("shapes that overflow are refused") {
    CHECK_THAT(refusal_of_tensor("F32", "[1152921504606846976]", "[0, 64]"),
               Contains("needs 4611686018427387904 bytes"));
    CHECK_THAT(refusal_of_tensor("F32", "[4294967296, 4294967296]", "[0, 64]"),
               Contains("the number of elements does not fit into 64 bits"));
    CHECK_THAT(refusal_of_tensor("I64", "[1152921504606846976, 4]", "[0, 64]"),
               Contains("needs too many bytes"));
    CHECK_THAT(refusal_of_tensor("F32", "[0, 4294967296, 4294967296]", "[0, 0]"),
               Contains("the number of elements does not fit"));
    CHECK_THAT(refusal_of_tensor("F32", "[9223372036854775808]", "[0, 64]"),
               Contains("shape[0]: expected an integer from 0"));
    CHECK_THAT(refusal_of_tensor("F32", "[-1]", "[0, 4]"),
               Contains("shape[0]: expected an integer from 0") && Contains("-1"));
    CHECK_THAT(refusal_of_tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0, 4]"),
               Contains("an array of at most 8"));
    CHECK_THAT(refusal_of_tensor("F32", "{}", "[0, 4]"), Contains("shape: expected an array"));
}

TEST_CASE("tensors that share bytes are refused, but holes and empty tensors are not") {
    const auto header = [](const std::string &a, const std::string &b) {
        return R"({"a": {"dtype": "U8", "shape": [8], "data_offsets": )" + a +
               R"(}, "b": {"dtype": "U8", "shape": [8], "data_offsets": )" + b + "}}";
    };
    CHECK_THAT(refusal_of_header(header("[0, 8]", "[7, 15]")),
               Contains("tensor 'b': the data overlaps the data of tensor 'a'"));
    CHECK_THAT(refusal_of_header(header("[0, 8]", "[0, 8]")), Contains("overlaps"));
    CHECK_THAT(refusal_of_header(header("[3, 11]", "[0, 8]")),
               Contains("tensor 'a': the data overlaps the data of tensor 'b'"));
    CHECK(parse_tensors(safetensors_bytes(header("[20, 28]", "[0, 8]"), std::string(64, 'd')))
              .tensors.size() == 2);
    const auto empty =
        parse_tensors(safetensors_bytes(tensor_entry("F32", "[4, 0, 2]", "[4, 4]"), "data"));
    CHECK(empty.tensors.at(0).elements() == 0);
    CHECK(parse_tensors(safetensors_bytes("{}")).tensors.empty());
}

TEST_CASE("types that Keel does not know are listed without a type") {
    const auto parsed = parse_tensors(
        safetensors_bytes(tensor_entry("F4_X", "[5, 7]", "[0, 9]"), std::string(9, 'x')));
    CHECK(parsed.tensors.at(0).dtype == KEEL_DTYPE_NONE);
    CHECK(parsed.tensors.at(0).dtype_name == "F4_X");
    CHECK(parsed.tensors.at(0).bytes == 9);
    const auto wide =
        parse_tensors(safetensors_bytes(tensor_entry("I64", "[1]", "[0, 8]"), std::string(8, 'x')));
    CHECK(wide.tensors.at(0).dtype == KEEL_DTYPE_NONE);
}

TEST_CASE("a shard index maps tensors to plain file names") {
    const ShardIndex index =
        parse_shard_index(R"({"metadata": {"total_size": 5}, "weight_map": {"b": "m-2.safetensors",
        "a": "m-1.safetensors", "c": "m-1.safetensors"}})",
                          "i.json");
    CHECK(index.files == std::vector<std::string>{"m-1.safetensors", "m-2.safetensors"});
    REQUIRE(index.tensors.size() == 3);
    CHECK(index.tensors[1] == std::pair<std::string, uint32_t>{"b", 1});
}

TEST_CASE("a shard index cannot name files outside its folder") {
    for (const std::string name :
         {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", ".safetensors", "",
          "x.bin", ".hidden.safetensors", "a\\\\b.safetensors", "x\\u0000.safetensors"}) {
        const auto text = error_text(
            [&] { parse_shard_index(R"({"weight_map": {"a": ")" + name + R"("}})", "i.json"); });
        CHECK_THAT(
            text,
            StartsWith("i.json:1: weight_map.a: expected the plain name of a .safetensors file"));
    }
    const auto refused = [](std::string_view text) {
        return error_text([&] { parse_shard_index(text, "i.json"); });
    };
    CHECK_THAT(refused("{}"), Contains("'weight_map' is missing"));
    CHECK_THAT(refused(R"({"weight_map": {}})"), Contains("expected tensors, found none"));
    CHECK_THAT(refused(R"({"weight_map": {"a": 5}})"), Contains("found 5"));
    CHECK_THAT(refused(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})"),
               Contains("'a' occurs twice"));
}
