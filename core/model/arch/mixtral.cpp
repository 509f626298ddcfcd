// Mixtral: Mistral with a mixture of experts. The weights of the chosen experts are normalized.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

constexpr LayerNames mixtral_names = {.router = "block_sparse_moe.gate",
                                      .experts = "block_sparse_moe.experts",
                                      .expert_gate = "w1",
                                      .expert_up = "w3",
                                      .expert_down = "w2"};

void configure_mixtral(const model::ConfigReader &in, ModelConfig &config) {
    read_experts(in, config, "intermediate_size");
    config.experts.normalize = true;
    read_window_of_all_layers(in, config);
}

} // namespace

constinit const Architecture mixtral = {
    "MixtralForCausalLM",
    "mixtral",
    {.kv_heads = 8, .max_positions = 131072, .rope_theta = 1e6, .norm_eps = 1e-5},
    mixtral_names,
    configure_mixtral};

} // namespace keel::arch
