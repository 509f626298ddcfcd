#pragma once

#include "base/location.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace keel::pipeline {

// What a text was read from: the name that messages show and the folder that relative paths in it
// start from.
struct YamlSource {
    std::string name;
    std::filesystem::path folder;
    bool is_override = false; // a --set on the command line: has no lines
};

struct YamlEntry;

// A YAML value that remembers where it was written. Aliases are expanded; tags do not exist here.
struct YamlNode {
    enum class Kind { null, scalar, sequence, map };

    Kind kind = Kind::null;
    std::string text;    // scalar: its content, escapes resolved
    bool quoted = false; // scalar: in quotes or a block (| or >), so never a number, true or null
    uint32_t line = 0;   // from 1
    uint32_t column = 0; // from 1, in characters
    std::shared_ptr<const YamlSource> source; // null: a default
    std::vector<YamlNode> items;              // sequence
    std::vector<YamlEntry> entries;           // map, in the order of the text, keys unique

    SourceLocation where() const;
    bool is_map() const noexcept { return kind == Kind::map; }
    bool is_null() const noexcept { return kind == Kind::null; }
    const YamlEntry *find(std::string_view key) const noexcept;
    YamlEntry *find(std::string_view key) noexcept;
    bool erase(std::string_view key);
};

struct YamlEntry {
    std::string key;
    SourceLocation where; // of the key
    YamlNode value;
};

// How a value is shown after "found": "'abc'", "a list", "a map", "nothing".
std::string describe(const YamlNode &node);

// Bounds for YAML from outside. Aliases count as what they expand to.
struct YamlLimits {
    size_t bytes = size_t{1} << 20;
    size_t depth = 64;
    size_t nodes = 20'000;
};

// Parses one document. Throws Error(input) "NAME:LINE:COLUMN: ..." for what is not YAML, text that
// is not UTF-8, control characters, tags, repeated keys, keys that are no scalars, a second
// document, and whatever passes the limits. A UTF-8 byte order mark is passed over. An empty text
// gives a null node.
YamlNode parse_yaml(std::string_view text, const YamlSource &source, const YamlLimits &limits = {});

// The same for a file; relative paths in it start from its folder.
YamlNode load_yaml(const std::filesystem::path &path, const YamlLimits &limits = {});

} // namespace keel::pipeline
