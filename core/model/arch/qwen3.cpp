// Qwen 3 (dense): Llama with an RMS norm on each head's query and key before RoPE. The head size is
// not hidden / heads.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_qwen3(const model::ConfigReader &in, ModelConfig &config) {
    config.qk_norm = true;
    read_attention_bias(in, config);
    read_qwen_window(in, config);
}

} // namespace

constinit const Architecture qwen3 = {"Qwen3ForCausalLM",
                                      "qwen3",
                                      {.kv_heads = 32, .head_dim = 128, .max_positions = 32768},
                                      {},
                                      configure_qwen3};

} // namespace keel::arch
