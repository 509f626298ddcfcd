// Phi 3, 3.5 and 4 (mini and medium, text): Llama with joined tensors: q, k and v are one tensor,
// and so are gate and up. RoPE may rotate only a part of each head, and may have LongRoPE's
// factors.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_phi3(const model::ConfigReader &in, ModelConfig &config) {
    for (const char *key : {"attention_bias", "mlp_bias", "lm_head_bias"}) refuse_true(in, key);
    read_window_of_all_layers(in, config);
}

} // namespace

constinit const Architecture phi3 = {"Phi3ForCausalLM",
                                     "phi3",
                                     {.max_positions = 4096, .rotary_factor = 1, .norm_eps = 1e-5},
                                     {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"},
                                     configure_phi3};

} // namespace keel::arch
