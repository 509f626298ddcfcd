#pragma once

#include "config/yaml_document.hpp"

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// A rule that says which keys of the file an override removes. Without rules, `--set
// policy.budget.ratio=0.5` over a file with `tokens` would leave both keys.
struct OverrideRule {
    enum class When {
        always,  // drop if the override names `key`
        changed, // drop if the override gives `key` another value
        // drop if the override's value of `key` is not `word` and does not contain `word` in a list
        lacks,
    };
    std::string_view section;
    std::string_view key;
    When when;
    std::span<const std::string_view> drops; // keys of the same section that are dropped
    std::string_view word = {};
};

std::span<const OverrideRule> override_rules();

// The names of overrides in messages.
struct OverrideNames {
    std::string_view option = "--set"; // messages then name an override "--set KEY"
    // Options that set a key: {"sampling.seed", "--seed"}.
    std::map<std::string, std::string, std::less<>> of_key = {};
};

// Merges overrides into the tree of a file. `overrides` is a tree with the keys to change. Call
// this before the tree is checked. Then overrides get the same checks as the file, and an error in
// an override names its --set. Sections and params are merged key by key. Every other value is
// replaced. OverrideRules of the schema say which keys a changed key removes: another `plugin`
// drops the `params` of that section, `ratio` drops `tokens`. This function also merges the arms of
// an experiment.
void merge_overrides(YamlNode &file, YamlNode overrides);

// Makes a tree from the --set arguments "a.b=c". c is YAML. For a key whose value is a text, c is
// the text itself unless c is in quotes. A later argument replaces an earlier one. An argument for
// `plugin` never removes the params that other arguments give. This holds in any order of the
// arguments. Relative paths start at `folder`. Throws Error(usage) for an argument that is not
// KEY=VALUE.
YamlNode parse_overrides(std::span<const std::string> arguments,
                         const std::filesystem::path &folder, const OverrideNames &names = {});

} // namespace keel::pipeline
