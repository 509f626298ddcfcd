#pragma once

#include "config/config.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// Throws Error(input) if the path does not exist. The message names a similar file of the folder.
void require_path(const std::filesystem::path &path, std::string_view expected);

// Returns the folder of a model, or the path of its GGUF file. For a file inside a model's folder,
// returns the folder.
std::filesystem::path model_folder(const std::string &given);

// Makes a config for a target. A pipeline file gives its config. A model folder or a GGUF file
// gives a config with the backend cpu and the defaults. `overrides` and `names`: see load_config().
PipelineConfig config_for_target(const std::string &target,
                                 std::span<const std::string> overrides = {},
                                 const OverrideNames &names = {});

} // namespace keel::pipeline
