// Gemma 3, text: Gemma 2 without soft-caps, with an RMS norm on each head's query and key. For each
// layer with full attention there are five layers with a window. The layers with a window have
// their own RoPE theta.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_gemma3(const model::ConfigReader &in, ModelConfig &config) {
    read_gemma(in, config);
    read_attention_bias(in, config);
    read_gemma_attention(in, config, 0, 0);
    config.qk_norm = true;
    const char *key =
        in.has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
    const int64_t pattern = in.integer(key, 1, INT32_MAX, 6);
    read_sliding_window(in, config, 4096,
                        [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

} // namespace

constinit const Architecture gemma3 = {"Gemma3ForCausalLM",
                                       "gemma3_text",
                                       {.kv_heads = 4,
                                        .head_dim = 256,
                                        .max_positions = 131072,
                                        .rope_theta = 1e6,
                                        .local_rope_theta = 1e4,
                                        .tied_embeddings = true,
                                        .activation_key = "hidden_activation",
                                        .activation = "gelu_pytorch_tanh"},
                                       gemma_post_norm_names,
                                       configure_gemma3};

} // namespace keel::arch
