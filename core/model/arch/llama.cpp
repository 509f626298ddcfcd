// Llama 1 to 3.3, TinyLlama, SmolLM 1 and 2, and every other model that names LlamaForCausalLM. The
// other architectures are described by their differences from Llama.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_llama(const model::ConfigReader &in, ModelConfig &config) {
    read_attention_bias(in, config);
    config.mlp_bias = in.boolean("mlp_bias", false);
}

} // namespace

constinit const Architecture llama = {"LlamaForCausalLM", "llama", {}, {}, configure_llama};

} // namespace keel::arch
