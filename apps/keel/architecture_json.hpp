#pragma once

#include "model/config.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {

// A model's architecture as JSON, for `keel inspect --json`.
nlohmann::ordered_json architecture_json(const ModelConfig &config);

} // namespace keel::cli
