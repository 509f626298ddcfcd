#include "config/yaml_document.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::pipeline;
using Catch::Matchers::Contains;
using keel::test::error_text;

namespace {

YamlNode parse_node(std::string_view text) { return parse_yaml(text, {"f.yaml", "/folder"}); }
std::string yaml_refused(std::string_view text) {
    return error_text([&] { parse_node(text); });
}

} // namespace

TEST_CASE("a document keeps types, order, quotes and places") {
    const YamlNode root = parse_node("b: [1, 'two']\na:\n  c: x\n  é: {k: v}\nn:\n");
    REQUIRE(root.is_map());
    REQUIRE(root.entries.size() == 3);
    CHECK(root.entries[0].key == "b");
    CHECK(to_string(root.entries[0].where) == "f.yaml:1:1");
    const YamlNode &list = root.entries[0].value;
    REQUIRE(list.items.size() == 2);
    CHECK(list.items[0].text == "1");
    CHECK_FALSE(list.items[0].quoted);
    CHECK(list.items[1].quoted);
    CHECK(to_string(list.items[1].where()) == "f.yaml:1:8");
    // Columns count characters, not bytes.
    const YamlNode &inner = root.find("a")->value.find("é")->value;
    CHECK(to_string(inner.find("k")->value.where()) == "f.yaml:4:10");
    // The place of an empty value is the place of its key.
    CHECK(root.find("n")->value.is_null());
    CHECK(to_string(root.find("n")->value.where()) == "f.yaml:5:1");
    CHECK(root.find("zzz") == nullptr);
}

TEST_CASE("an empty text is a null document, and a byte order mark is ignored") {
    CHECK(parse_node("").is_null());
    CHECK(parse_node("# only a comment\n").is_null());
    CHECK(parse_node("---\n").is_null());
    const YamlNode root = parse_node("\xEF\xBB\xBF"
                                     "a: 1\r\nb: 2\r\n");
    CHECK(to_string(root.find("a")->value.where()) == "f.yaml:1:4");
    CHECK(root.find("b")->value.text == "2");
}

TEST_CASE("block scalars keep their line ends") {
    const YamlNode root = parse_node("a: |\n  x\n   y\nb: >-\n  x\n  y\nc: |+\n  z\n\n");
    CHECK(root.find("a")->value.text == "x\n y\n");
    CHECK(root.find("a")->value.quoted);
    CHECK(root.find("b")->value.text == "x y");
    CHECK(root.find("c")->value.text == "z\n\n");
}

TEST_CASE("aliases are expanded") {
    const YamlNode root = parse_node("a: &x {k: [1, 2]}\nb: *x\n");
    CHECK(root.find("b")->value.find("k")->value.items.at(1).text == "2");
}

TEST_CASE("invalid YAML is refused with its place") {
    struct Case {
        std::string text, message;
    };
    const std::vector<Case> cases = {
        {"a: 1\na: 2\n",
         "f.yaml:2:1: expected each key once, found 'a' again (first at f.yaml:1:1)"},
        {"a: 1\n---\nb: 2\n", "f.yaml:2:1: expected one YAML document, found a second one ('---')"},
        {"a:\n\tb: 1\n", "f.yaml:2:3: expected spaces for the indentation, found a tab"},
        {"a: !!int 3\n",
         "f.yaml:1:4: expected a plain value, found the tag 'tag:yaml.org,2002:int'; remove it"},
        {"a: !x {b: 1}\n", "f.yaml:1:4: expected a plain value, found the tag '!x'; remove it"},
        {"{[a]: 1}\n", "f.yaml:1:2: expected a word as a key, found a list"},
        {"? {a: b}\n: 1\n", "f.yaml:1:3: expected a word as a key, found a map"},
        {"~: 1\n", "f.yaml:1:1: expected a word as a key, found nothing"},
        {"a: *x\n", "f.yaml:1:4: expected an anchor (&name) for this alias (*name), found none"},
        {"a: &x [*x]\n", "f.yaml:1:8: expected an alias of a complete value, found an alias inside "
                         "the value that it names"},
        {"a: [1, 2\n", "f.yaml:2:1: expected valid YAML, found: end of sequence flow not found"},
        {"a: \"b\n", "f.yaml:2:1: expected valid YAML, found: illegal EOF in scalar"},
        {"a: \"b", "f.yaml:1:6: expected valid YAML, found: illegal EOF in scalar"},
        {"a: 'b\n\n", "f.yaml:3:1: expected valid YAML, found: illegal EOF in scalar"},
        {"a: b: c\n", "f.yaml:1:5: expected valid YAML, found: illegal map value"},
        {"a: caf\xE9\n", "f.yaml:1:7: expected UTF-8 text, found the byte 0xe9"},
        {"é: \xC0\x80\n", "f.yaml:1:4: expected UTF-8 text, found the byte 0xc0"},
        {std::string("a: b\0c\n", 7),
         "f.yaml:1:5: expected UTF-8 text, found the control character \\x00"},
        {"a: 1\nb: \x04\n", "f.yaml:2:4: expected UTF-8 text, found the control character \\x04"},
        {"a: 1\rb: 2\n",
         "f.yaml:1:5: expected UTF-8 text, found a carriage return without a line feed"},
        {std::string("\xFF\xFE"
                     "a\0",
                     4),
         "f.yaml:1:1: expected UTF-8 text, found UTF-16; save the file as UTF-8"},
    };
    for (const Case &c : cases) {
        INFO(c.text);
        CHECK(yaml_refused(c.text) == c.message);
    }
}

TEST_CASE("depth, size and the expansion of aliases are limited") {
    CHECK(yaml_refused("a: " + std::string(70, '[') + std::string(70, ']')) ==
          "f.yaml:1:67: expected at most 64 levels, found more");
    CHECK_THAT(yaml_refused(std::string(500'000, '[')), Contains("expected at most 64 levels"));
    CHECK_THAT(yaml_refused(std::string(500'000, '{')), Contains("expected"));
    std::string dashes;
    for (int i = 0; i < 100'000; ++i) dashes += "- ";
    CHECK_THAT(yaml_refused(dashes), Contains("expected at most 64 levels"));
    CHECK(yaml_refused(std::string((1u << 20) + 1, ' ')) ==
          "f.yaml: expected at most 1.0 MiB of YAML, found 1.0 MiB");

    std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 12; ++i) {
        const std::string alias = "*a" + std::to_string(i - 1);
        laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + alias;
        for (int k = 0; k < 9; ++k) laughs += ", " + alias;
        laughs += "]\n";
    }
    CHECK_THAT(yaml_refused(laughs), Contains("expected at most 20000 values, found more"));

    // This document has few values, but each of them is long.
    std::string wide = "a: &a " + std::string(100'000, 'x') + "\nb: [*a";
    for (int i = 0; i < 5000; ++i) wide += ", *a";
    CHECK_THAT(yaml_refused(wide + "]\n"), Contains("an alias counts as all values of its anchor"));

    std::string chain = "a0: &a0 [x]\n";
    for (int i = 1; i < 80; ++i)
        chain += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" +
                 std::to_string(i - 1) + "]\n";
    CHECK_THAT(yaml_refused(chain), Contains("expected at most 64 levels"));
}

TEST_CASE("a file is read with its name, and a missing file is refused") {
    const test::TempFolder folder;
    const auto file = folder.write("p.yaml", "a: 1\n");
    const YamlNode root = load_yaml(file);
    CHECK(to_string(root.find("a")->value.where()) == file.string() + ":1:4");
    CHECK(root.source->folder == folder.path());
    CHECK_THAT(error_text([&] { load_yaml(folder / "absent.yaml"); }), Contains("absent.yaml"));
    const auto large = folder.write("large.yaml", std::string((1u << 20) + 1, '#'));
    CHECK_THAT(error_text([&] { load_yaml(large); }), Contains("expected at most 1.0 MiB"));
}
