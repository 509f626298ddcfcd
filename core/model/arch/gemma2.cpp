// Gemma 2: a Gemma with norms before and after attention and feed-forward, soft-caps on the logits
// of attention and of the model, and a window on every other layer, starting with the first.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_gemma2(const model::ConfigReader &in, ModelConfig &config) {
    read_gemma(in, config);
    read_attention_bias(in, config);
    read_gemma_attention(in, config, 50, 30);
    read_sliding_window(in, config, 4096, [](int64_t layer) { return layer % 2 == 0; });
}

} // namespace

constinit const Architecture gemma2 = {"Gemma2ForCausalLM",
                                       "gemma2",
                                       {.kv_heads = 4,
                                        .head_dim = 256,
                                        .max_positions = 8192,
                                        .tied_embeddings = true,
                                        .activation_key = "hidden_activation",
                                        .activation = "gelu_pytorch_tanh"},
                                       gemma_post_norm_names,
                                       configure_gemma2};

} // namespace keel::arch
