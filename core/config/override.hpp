#pragma once

#include "config/yaml_document.hpp"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// Which keys of the file an override removes. Without a rule, `--set policy.budget.ratio=0.5` over
// a file with `tokens` would leave both.
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

std::span<const OverrideRule> override_rules();

// How messages name an override.
struct OverrideNames {
    std::string_view option = "--set"; // "--set KEY"
    // Keys that the user gave by an option of their own: {"sampling.seed", "--seed"}.
    std::map<std::string, std::string, std::less<>> of_key = {};
};

// Overrides: a tree with the keys to change, merged over a file's tree before anything is checked,
// so that an override meets the same checks as the file and its errors name the --set. Sections are
// merged key by key; params too; every other value is replaced. The schema's OverrideRules say
// which keys a changed key removes: another `plugin` drops the file's `params` of that section,
// `ratio` drops `tokens`. An experiment's arms are merged with the same function.
void merge_overrides(YamlNode &file, YamlNode overrides);

// The tree of the --set arguments "a.b=c". c is YAML; for keys whose value is a text, c is the text
// itself unless it is in quotes. Later ones win; params stay, whatever their order. Relative paths
// start from `folder`. Throws Error(usage) for an argument that is not KEY=VALUE.
YamlNode parse_overrides(std::span<const std::string> arguments,
                         const std::filesystem::path &folder, const OverrideNames &names = {});

} // namespace keel::pipeline
