#pragma once

#include "config/config.hpp"

#include <string>

namespace keel::cli {

// Checks everything in a pipeline that needs no weights: plugins and their parameters, devices, the
// model's files, tensors and tokenizer, the shape of the cache, the prompt. Throws Error with the
// line in the config. Otherwise returns a one-line description of the pipeline.
std::string check_pipeline(const pipeline::PipelineConfig &config);

} // namespace keel::cli
