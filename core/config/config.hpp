#pragma once

#include "config/backend_section.hpp"
#include "config/hybrid_section.hpp"
#include "config/kv_section.hpp"
#include "config/model_section.hpp"
#include "config/override.hpp"
#include "config/policy_section.hpp"
#include "config/sampling_section.hpp"
#include "config/sync_section.hpp"
#include "config/yaml_document.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// A pipeline file, checked against the schema. Plugins and their parameters are checked when the
// plugins are loaded. At that time Keel also checks whether model, backend and policy fit together.
struct PipelineConfig {
    ModelSection model;
    BackendSection backend; // empty if `hybrid` is given
    HybridSection hybrid;
    KvSection kv;
    PolicySection policy;
    SyncSection sync;
    Setting<bool> strict;
    Setting<std::string> fallback;
    SamplingSection sampling;
    GenerationSection generation;
    bool operator==(const PipelineConfig &) const = default;
};

// Checks a tree and makes a config from it. Throws Error(input) "FILE:LINE:COLUMN: expected ...,
// found ...".
PipelineConfig make_config(const YamlNode &root);

// Reads a pipeline file. `overrides` are the arguments of --set, such as "policy.budget.tokens=64".
// A later override replaces an earlier override. Paths in overrides start at the working directory.
// See override.hpp.
PipelineConfig load_config(const std::filesystem::path &path,
                           std::span<const std::string> overrides = {},
                           const OverrideNames &names = {});

// Reads a pipeline from memory. Messages name the source `name`. Relative paths start at `folder`.
PipelineConfig parse_config(std::string_view text, const std::string &name,
                            const std::filesystem::path &folder,
                            std::span<const std::string> overrides = {});

// Makes a pipeline without a file, from overrides and defaults. The overrides must have model.path
// and backend.plugin.
PipelineConfig config_from_overrides(std::span<const std::string> overrides,
                                     const OverrideNames &names = {});

} // namespace keel::pipeline
