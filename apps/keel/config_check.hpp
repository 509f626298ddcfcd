#pragma once

#include "config/config.hpp"

#include <string>

namespace keel::cli {

// Checks everything about a pipeline that needs no weights: plugins and their parameters, devices,
// the model's files, tensors and tokenizer, the cache's shape, the prompt. Throws Error with the
// config's line. Else returns a one-line description of the pipeline.
std::string check_pipeline(const pipeline::PipelineConfig &config);

} // namespace keel::cli
