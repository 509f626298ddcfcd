#pragma once

// Internal to core/model: the architectures, each defined in a file of its own beside this one, and
// what they share.

#include "model/config.hpp"
#include "model/config_reader.hpp"

#include <functional>

namespace keel::arch {

extern const Architecture llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3;

// Tensor names of Gemma 2 and 3, whose layers have norms on both sides of attention and
// feed-forward.
inline constexpr LayerNames gemma_post_norm_names = {.post_attention_norm =
                                                         "post_attention_layernorm",
                                                     .ffn_norm = "pre_feedforward_layernorm",
                                                     .post_ffn_norm = "post_feedforward_layernorm"};

// "attention_bias": biases on q, k, v and on the output of attention.
void read_attention_bias(const model::ConfigReader &in, ModelConfig &config);

// "sliding_window", which must be there or have a fallback above 0, and the layers that it holds
// for: those that "layer_types" names, or, where the config lists none, those that `slides` is true
// for. No window is kept if it holds for no layer.
void read_sliding_window(const model::ConfigReader &in, ModelConfig &config, int64_t fallback,
                         const std::function<bool(int64_t layer)> &slides);

// "use_sliding_window", "sliding_window" and "max_window_layers", the first layer with a window:
// Qwen.
void read_qwen_window(const model::ConfigReader &in, ModelConfig &config);

// What all Gemmas have: (1 + w) norms and scaled embeddings.
void read_gemma(const model::ConfigReader &in, ModelConfig &config);

// "query_pre_attn_scalar" and the two soft-caps: Gemma 2 and 3. The caps count where the config
// leaves them out; null there: none.
void read_gemma_attention(const model::ConfigReader &in, ModelConfig &config, double attention_cap,
                          double logit_cap);

} // namespace keel::arch
