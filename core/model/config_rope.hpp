#pragma once

// Used only in core/model.

#include "model/config.hpp"
#include "model/config_reader.hpp"

namespace keel::model {

// Reads the keys about RoPE: theta, the rotated part of each head, and scaling. Sizes must be set
// in `config`. YaRN may raise config.max_positions. Throws Error(input).
void read_rope(const ConfigReader &in, ModelConfig &config);

} // namespace keel::model
