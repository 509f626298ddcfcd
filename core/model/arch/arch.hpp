#pragma once

// Internal to core/model: the architectures, and the functions that they share. Each architecture
// has its own file in this folder.

#include "model/config.hpp"
#include "model/config_reader.hpp"

#include <functional>

namespace keel::arch {

extern const Architecture llama, mistral, ministral, qwen2, qwen3, gemma, gemma2, gemma3;
extern const Architecture ministral3, smollm3, phi3, olmo2, olmo3, granite, glm, glm4, cohere,
    cohere2;
extern const Architecture mixtral, qwen2_moe, qwen3_moe, olmoe;

// Tensor names of Gemma 2 and 3. Their layers have norms before and after attention and
// feed-forward.
inline constexpr LayerNames gemma_post_norm_names = {.post_attention_norm =
                                                         "post_attention_layernorm",
                                                     .ffn_norm = "pre_feedforward_layernorm",
                                                     .post_ffn_norm = "post_feedforward_layernorm"};

// Reads "attention_bias": biases on q, k, v and on the output of attention.
void read_attention_bias(const model::ConfigReader &in, ModelConfig &config);

// Reads "sliding_window" and the layers that have the window. The key must be present, unless
// `fallback` is above 0. "layer_types" names the layers. If the config does not list them, the
// layers are those for which `slides` is true. If no layer has the window, the config gets no
// window.
void read_sliding_window(const model::ConfigReader &in, ModelConfig &config, int64_t fallback,
                         const std::function<bool(int64_t layer)> &slides);

// Reads "sliding_window" as the window of all layers. If the key is absent, the window is
// `fallback`; 0: there is none. If the key is null, there is no window.
void read_window_of_all_layers(const model::ConfigReader &in, ModelConfig &config,
                               int64_t fallback = 0);

// Sets the layers without RoPE: those that are true in `without`. If there are none, the config
// gets an empty list.
void set_layers_without_rope(ModelConfig &config, std::vector<bool> without);

// Refuses a config in which the key is true, because Keel does not compute what the key asks for.
void refuse_true(const model::ConfigReader &in, const char *key);

// Reads Qwen's keys "use_sliding_window", "sliding_window" and "max_window_layers", which is the
// first layer with a window.
void read_qwen_window(const model::ConfigReader &in, ModelConfig &config);

// Reads the number of experts, "num_experts_per_tok", and the size of an expert from `size_key`.
// Refuses keys that change the choice of experts, or the layers that have experts.
void read_experts(const model::ConfigReader &in, ModelConfig &config, const char *size_key);

// Sets the properties that all Gemmas share: (1 + w) norms and scaled embeddings.
void read_gemma(const model::ConfigReader &in, ModelConfig &config);

// Reads "query_pre_attn_scalar" and the two soft-caps of Gemma 2 and 3. If the config does not have
// a cap, the argument is its value. If a cap is null, the model has no such cap.
void read_gemma_attention(const model::ConfigReader &in, ModelConfig &config, double attention_cap,
                          double logit_cap);

} // namespace keel::arch
