#include "base/json_reader.hpp"

#include "base/error.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace keel;
using test::error_text;

namespace {

constexpr const char *small = R"({
  "name": "x",
  "sizes": [
    1,
    -2, 3.5
  ],
  "inner": {"on": true, "none": null}
})";

std::string refused(std::string_view text, const JsonLimits &limits = {}, size_t line = 1) {
    return error_text([&] { JsonDocument(text, "f.json", limits, line); });
}

} // namespace

TEST_CASE("values of a JSON document are read with their types and ranges") {
    const JsonDocument document(small, "f.json");
    const JsonNode root = document.root();
    CHECK(root.at("name").text() == "x");
    CHECK(root.at("sizes").size() == 3);
    CHECK(root.at("sizes").element(1).integer(-5, 5) == -2);
    CHECK(root.at("sizes").element(0).natural(0, 9) == 1);
    CHECK(root.at("sizes").element(2).number(0, 9) == 3.5);
    CHECK(root.at("inner").at("on").flag());
    CHECK_FALSE(root.at("inner").find("none"));
    CHECK_FALSE(root.find("absent"));
    CHECK(root.members().size() == 3);
}

TEST_CASE("an error about a JSON value names file, line, path, expected and found") {
    const JsonDocument document(small, "f.json");
    const JsonNode root = document.root(), sizes = root.at("sizes"), inner = root.at("inner");
    const auto text = [](const auto &call) { return error_text(call); };
    CHECK(text([&] { root.at("name").flag(); }) ==
          "f.json:2: name: expected true or false, found \"x\"");
    CHECK(text([&] { sizes.element(1).natural(0, 9); }) ==
          "f.json:5: sizes[1]: expected an integer from 0 to 9, found -2");
    CHECK(text([&] { sizes.element(2).integer(0, 9); }) ==
          "f.json:5: sizes[2]: expected an integer from 0 to 9, found 3.5");
    CHECK(text([&] { sizes.text(); }) == "f.json:3: sizes: expected a string, found an array of 3");
    CHECK(text([&] { sizes.size(2); }) ==
          "f.json:3: sizes: expected an array of at most 2, found an array of 3");
    CHECK(text([&] { inner.at("on").number(0, 1); }) ==
          "f.json:7: inner.on: expected a number from 0 to 1, found true");
    CHECK(text([&] { inner.at("off"); }) == "f.json:7: inner: 'off' is missing");
    CHECK(text([&] { root.at("iner"); }) ==
          "f.json:1: 'iner' is missing, found 'inner'; did you mean 'iner'?");
    CHECK(text([&] { inner.fail("off", "is needed"); }) == "f.json:7: inner.off: is needed");
    CHECK(text([&] { root.expected("a list"); }) == "f.json:1: expected a list, found an object");
    CHECK(text([&] {
              inner.only({"one", "none"});
          }) == "f.json:7: inner.on: unknown key; did you mean 'one'?; the keys are one, none");
    CHECK(text([&] { root.at("name").text(0); }) ==
          "f.json:2: name: expected a string of at most 0 bytes, found 1");
}

TEST_CASE("the first line of a JSON text has its line number in the file") {
    const JsonDocument line(R"({"a": 1})", "f.jsonl", {}, 17);
    CHECK(error_text([&] { line.root().at("a").text(); }) ==
          "f.jsonl:17: a: expected a string, found 1");
    const JsonDocument part("[1,\n2]", "f.bin: header", {}, 0);
    CHECK(error_text([&] { part.root().element(1).text(); }) ==
          "f.bin: header: [1]: expected a string, found 2");
    const JsonDocument made = JsonDocument::of_tree({{"b", {1, 2}}}, "f.gguf");
    CHECK(error_text([&] { made.root().at("b").element(1).text(); }) ==
          "f.gguf: b[1]: expected a string, found 2");
}

TEST_CASE("text that is not JSON is refused with line and column") {
    CHECK(refused("{\n  \"a\": x}") == "f.json:2:8: not valid JSON: syntax error while parsing "
                                       "value - invalid literal; last read: "
                                       "'\"a\": x'");
    CHECK(refused("").starts_with("f.json:1:1: not valid JSON: "));
    CHECK(refused("[1] 2").starts_with("f.json:1:5: not valid JSON: "));
    CHECK(refused("[1e999]").starts_with("f.json:1:6: not valid JSON: number overflow"));
    CHECK(refused("\"\xff\"").starts_with("f.json:1:2: not valid JSON: "));
    CHECK(refused("{", {}, 0).starts_with("f.json: byte 2: not valid JSON: "));
    CHECK(refused("{", {}, 9).starts_with("f.json:9:2: not valid JSON: "));
}

TEST_CASE("JSON that exceeds a limit is refused") {
    const JsonLimits limits{64, 3, 6};
    CHECK_NOTHROW(JsonDocument("[[[1]]]", "f.json", limits));
    CHECK(refused("[[[[1]]]]", limits) == "f.json:1: expected at most 3 nested levels, found more");
    CHECK_NOTHROW(JsonDocument("[1,2,3,4,5]", "f.json", limits));
    CHECK(refused("[1,2,3,4,5,6]", limits) == "f.json:1: expected at most 6 values, found more");
    CHECK(refused(std::string(65, ' '), limits) ==
          "f.json: expected at most 64 B of JSON, found 65 B");
    CHECK(refused(std::string(1'000'000, '[')) ==
          "f.json:1: expected at most 32 nested levels, found more");
    CHECK(refused(R"({"a": 1, "a": 2})") ==
          "f.json:1: the key 'a' occurs twice in one object; remove one");
    const std::string twice = "{\"a\": 1,\n\"a\": 2}";
    const JsonDocument last(twice, "f.json", {100, 3, 6, true});
    CHECK(last.root().at("a").integer(0, 9) == 2);
    CHECK(error_text([&] { last.root().at("a").text(); }) ==
          "f.json:2: a: expected a string, found 2");
}

TEST_CASE("names in a JSON document are shown as printable text") {
    const JsonDocument document("{\"a\\u001b[2J\": \"\\u0007\"}", "f.json");
    CHECK(error_text([&] { document.root().members()[0].second.flag(); }) ==
          "f.json:1: a\\x1b[2J: expected true or false, found \"\\x07\"");
}
