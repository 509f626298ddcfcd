#pragma once

// Internal to core/model: the architectures, each defined in a file of its own beside this one, and what they share.

#include "model/config.hpp"
#include "model/config_reader.hpp"

#include <functional>

namespace keel::arch {

extern const Architecture llama;

// "attention_bias": biases on q, k, v and on the output of attention.
void read_attention_bias(const model::ConfigReader &in, ModelConfig &config);

} // namespace keel::arch
