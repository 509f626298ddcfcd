#pragma once

#include "config/config.hpp"
#include "config/key.hpp"

#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// Writes the resolved form of a config: every key with its value, and with absolute paths. Reading
// this text gives the same config. With `origins`, each line ends in a comment with the origin of
// its value, and keys without a value are written as comments.
std::string to_yaml(const PipelineConfig &config, bool origins = false);

// All keys with their values. The values have the same form as in to_yaml(). Used for --json and
// tables.
std::vector<ResolvedKey> resolved_keys(const PipelineConfig &config);

// A key that a new pipeline sets, and the reason. The reason is a comment above the key, after the
// text of the schema.
struct InitValue {
    std::string path;  // for example "policy.budget.tokens"
    std::string value; // in the form of a --set value
    std::string note = {};
};

// Writes a pipeline for a new user, with comments that explain every key of the schema. Keys in
// `values` are set. All other keys are commented out and show their defaults. Throws Error(usage)
// if a path is not a key.
std::string init_yaml(std::span<const InitValue> values);

// The text of docs/reference/config.md.
std::string config_markdown();

} // namespace keel::pipeline
