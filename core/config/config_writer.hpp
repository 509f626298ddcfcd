#pragma once

#include "config/config.hpp"
#include "config/key.hpp"

#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// The resolved form: every key with its value, paths absolute. Read back it gives the same config.
// With `origins` each line ends in a comment with the origin of its value, and keys without a value
// are written as comments.
std::string to_yaml(const PipelineConfig &config, bool origins = false);

// Each key with its value in the form of to_yaml(). For --json and tables.
std::vector<ResolvedKey> resolved_keys(const PipelineConfig &config);

// A key that a new pipeline sets, and why: shown as a comment above it, after the schema's own
// words.
struct InitValue {
    std::string path;  // "policy.budget.tokens"
    std::string value; // as --set takes it
    std::string note = {};
};

// A commented pipeline for a new user: every key of the schema with its meaning. Keys in `values`
// are set; the others are commented out, with their defaults. Throws Error(usage) for a path that
// is no key.
std::string init_yaml(std::span<const InitValue> values);

// docs/reference/config.md.
std::string config_markdown();

} // namespace keel::pipeline
