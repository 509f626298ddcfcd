#pragma once

#include "config/config.hpp"

#include <string>

namespace keel::cli {

// Checks all of a pipeline that can be known without reading a weight: plugins and their
// parameters, devices, the model's files, tensors and tokenizer, the cache's shape, the prompt.
// Throws Error with the config's line; else says in one line what the pipeline is.
std::string check_pipeline(const pipeline::PipelineConfig &config);

} // namespace keel::cli
