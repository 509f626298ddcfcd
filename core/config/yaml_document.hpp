#pragma once

#include "base/location.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace keel::pipeline {

// The source of a text: the name that messages show, and the folder at which relative paths start.
struct YamlSource {
    std::string name;
    std::filesystem::path folder;
    bool is_override = false; // true: the text comes from --set on the command line, so it has no
                              // lines
};

struct YamlEntry;

// A YAML value that knows the place where it was written. Aliases are expanded. Tags are not
// allowed.
struct YamlNode {
    enum class Kind { null, scalar, sequence, map };

    Kind kind = Kind::null;
    std::string text;    // the content of a scalar, with escapes resolved
    bool quoted = false; // true for a scalar in quotes or a block (| or >); it is never a number,
                         // true or null
    uint32_t line = 0;   // counts from 1
    uint32_t column = 0; // counts characters from 1
    std::shared_ptr<const YamlSource> source; // NULL for a default
    std::vector<YamlNode> items;              // of a sequence
    std::vector<YamlEntry> entries;           // the entries of a map, in the order of the text;
                                              // keys are unique

    SourceLocation where() const;
    bool is_map() const noexcept { return kind == Kind::map; }
    bool is_null() const noexcept { return kind == Kind::null; }
    const YamlEntry *find(std::string_view key) const noexcept;
    YamlEntry *find(std::string_view key) noexcept;
    bool erase(std::string_view key);
};

struct YamlEntry {
    std::string key;
    SourceLocation where; // place of the key
    YamlNode value;
};

// Describes a value for an error message, after the word "found": "'abc'", "a list", "a map",
// "nothing".
std::string describe(const YamlNode &node);

// Limits for untrusted YAML. An alias counts as the nodes that it expands to.
struct YamlLimits {
    size_t bytes = size_t{1} << 20;
    size_t depth = 64;
    size_t nodes = 20'000;
};

// Parses one document. An empty text gives a null node. A UTF-8 byte order mark at the start is
// skipped. Throws Error(input) "NAME:LINE:COLUMN: ..." for:
// - text that is not YAML or not UTF-8
// - control characters
// - tags
// - repeated keys, and keys that are not scalars
// - a second document
// - text that exceeds the limits
YamlNode parse_yaml(std::string_view text, const YamlSource &source, const YamlLimits &limits = {});

// Parses a file as parse_yaml() does. Relative paths in it start at its folder.
YamlNode load_yaml(const std::filesystem::path &path, const YamlLimits &limits = {});

} // namespace keel::pipeline
