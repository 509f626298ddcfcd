#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keel {

// One row per model architecture that Keel can run: what its config.json means where architectures differ.
// A new architecture is a row here and a file with its graph.
struct Architecture {
    std::string_view name;       // as in config.json's "architectures", e.g. "LlamaForCausalLM"
    std::string_view model_type; // as in "model_type", e.g. "llama"
    bool qkv_bias; // q, k and v projections have a bias, where config.json does not say (attention_bias)
    bool qk_norm;  // RMS norm on each head's query and key before RoPE
    bool
        sliding_window; // "sliding_window" means something; elsewhere it is ignored, as its authors' code does
};

std::span<const Architecture> architectures();

// The row with that name, or nullptr.
const Architecture *find_architecture(std::string_view name);

// "LlamaForCausalLM, ...": for errors.
std::string architecture_names();

} // namespace keel
