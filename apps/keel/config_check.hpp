#pragma once

#include "config/config.hpp"

#include <string>

namespace keel::cli {

// Checks everything in a pipeline that can be checked without weights: plugins and their
// parameters, devices, the model's files, tensors and tokenizer, the shape of the cache, and the
// prompt. Throws an Error with the line in the config. If there is no error, returns a description
// of the pipeline in one line.
std::string check_pipeline(const pipeline::PipelineConfig &config);

} // namespace keel::cli
