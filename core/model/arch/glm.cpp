// GLM 4 (dense). RoPE rotates neighbouring elements, and only half of each head. Gate and up are
// one tensor, and q, k and v have biases. The models that name Glm4ForCausalLM (2025) also have
// norms on the outputs of attention and feed-forward.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

constexpr ConfigDefaults glm_defaults = {.kv_heads = 2,
                                         .head_dim = 128,
                                         .max_positions = 131072,
                                         .rotary_factor = 0.5,
                                         .norm_eps = 1.5625e-7};

void configure_glm(const model::ConfigReader &in, ModelConfig &config) {
    config.rope_interleaved = true;
    config.qkv_bias = in.boolean("attention_bias", true);
}

void configure_glm4(const model::ConfigReader &in, ModelConfig &config) {
    configure_glm(in, config);
    config.post_norms = true;
}

} // namespace

constinit const Architecture glm = {
    "GlmForCausalLM", "glm", glm_defaults, {.gate_up = "mlp.gate_up_proj"}, configure_glm};
constinit const Architecture glm4 = {"Glm4ForCausalLM",
                                     "glm4",
                                     glm_defaults,
                                     {.post_attention_norm = "post_self_attn_layernorm",
                                      .post_ffn_norm = "post_mlp_layernorm",
                                      .gate_up = "mlp.gate_up_proj"},
                                     configure_glm4};

} // namespace keel::arch
