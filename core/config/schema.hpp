#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// The pipeline file's keys as data. Parsing, ranges, defaults, suggestions, `keel config show`, `keel config init` and
// docs/config.md all read this table; nothing about a key is said anywhere else.

enum class KeyType {
    text,        // any scalar
    path,        // a file or folder, relative to where it is written
    plugin,      // a plugin's name, or a path to its library
    integer,     // minimum..maximum
    number,      // minimum..maximum
    boolean,     // true | false
    choice,      // one of choices
    choice_list, // a list of choices, none twice
    text_list,   // a list of texts, none of them empty
    falling,     // a list of numbers, each below the one before, minimum..maximum
    spans,       // a list of pairs [from, to] of integers, minimum..maximum, from below to
    params,      // a map that the plugin's own table is asked about
    backends,    // a map of names to backends
    layer_map,   // a list of {range, on}
};

struct KeySpec {
    std::string_view path; // "policy.budget.tokens"
    KeyType type;
    std::string_view default_text; // as it would stand in YAML; empty: none
    std::string_view doc;          // one sentence, with the unit
    std::string_view example;      // a value other than the default
    double minimum = 0;            // integer, number, falling, spans
    double maximum = 0;
    std::string_view word = {}; // integer, number: the word that stands for "not given": auto, none
    std::span<const std::string_view> choices = {};
    bool required = false;
};

struct SectionSpec {
    std::string_view path; // "policy.budget"
    std::string_view doc;
    std::string_view shorthand = {}; // a scalar in the section's place means this key of it: `sync: lazy`
};

// What an override does to its neighbours in the file. Without it, `--set policy.budget.ratio=0.5` over a file with
// `tokens` would leave both.
struct OverrideRule {
    enum class When {
        always,  // the override names `key`
        changed, // it gives `key` another value
        lacks,   // its value of `key` is not, or does not hold, `word`
    };
    std::string_view section;
    std::string_view key;
    When when;
    std::span<const std::string_view> drops; // keys of the same section
    std::string_view word = {};
};

// In the order in which they are shown. A section stands before its keys.
std::span<const KeySpec> schema_keys();
std::span<const SectionSpec> schema_sections();
std::span<const OverrideRule> override_rules();

const KeySpec *find_key(std::string_view path);
const SectionSpec *find_section(std::string_view path); // "" is the whole file

// "policy" and "budget" of "policy.budget"; the parent of a top-level key is "".
std::string_view parent_path(std::string_view path);
std::string_view last_part(std::string_view path);
std::string join_path(std::string_view section, std::string_view key);

// What a value has to be, for messages and docs: "an integer from 1 to 16777216 or auto", "one of f32, f16, bf16".
std::string expectation(const KeySpec &key);

// The end of an "unknown key" message: the nearest key of that section, else where a key of that name is, else the
// section's keys.
std::string key_suggestion(std::string_view section, std::string_view unknown);

} // namespace keel::pipeline
