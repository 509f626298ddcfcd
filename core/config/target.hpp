#pragma once

#include "config/config.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace keel::pipeline {

// Throws Error(input) if the path does not exist; the message names a similar file of the folder.
void require_path(const std::filesystem::path &path, std::string_view expected);

// The folder of a model, or its GGUF file. A file inside the folder stands for the folder.
std::filesystem::path model_folder(const std::string &given);

// The config of a pipeline file, or of a model folder or GGUF file with the backend cpu and the
// defaults. `overrides` and `names`: see load_config().
PipelineConfig config_for_target(const std::string &target,
                                 std::span<const std::string> overrides = {},
                                 const OverrideNames &names = {});

} // namespace keel::pipeline
