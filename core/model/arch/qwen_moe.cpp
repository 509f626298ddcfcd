// Qwen's mixtures of experts. Qwen2-MoE is Qwen 2 with an expert that all tokens use, in addition
// to the chosen ones. Qwen3-MoE is Qwen 3 with experts and without such a shared expert. A window
// of Qwen3-MoE is in all layers.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_qwen2_moe(const model::ConfigReader &in, ModelConfig &config) {
    config.qkv_bias = in.boolean("qkv_bias", true);
    read_qwen_window(in, config);
    read_experts(in, config, "moe_intermediate_size");
    config.experts.normalize = in.boolean("norm_topk_prob", false);
    config.experts.shared_size = in.integer("shared_expert_intermediate_size", 1, 1 << 24);
}

void configure_qwen3_moe(const model::ConfigReader &in, ModelConfig &config) {
    config.qk_norm = true;
    read_attention_bias(in, config);
    if (in.boolean("use_sliding_window", false)) read_window_of_all_layers(in, config, 4096);
    read_experts(in, config, "moe_intermediate_size");
    config.experts.normalize = in.boolean("norm_topk_prob", false);
}

} // namespace

constinit const Architecture qwen2_moe = {"Qwen2MoeForCausalLM",
                                          "qwen2_moe",
                                          {.kv_heads = 16, .max_positions = 32768},
                                          {.router = "mlp.gate"},
                                          configure_qwen2_moe};

constinit const Architecture qwen3_moe = {"Qwen3MoeForCausalLM",
                                          "qwen3_moe",
                                          {.kv_heads = 4, .max_positions = 32768},
                                          {.router = "mlp.gate"},
                                          configure_qwen3_moe};

} // namespace keel::arch
