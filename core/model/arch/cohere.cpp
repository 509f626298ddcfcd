// Command R (Cohere) and Command R7B (Cohere 2). Attention and feed-forward read the same norm,
// which is a layer norm without bias. RoPE rotates neighbouring elements. The logits have a factor.
// Cohere 2 has a window and RoPE in three of four layers, and neither in the fourth.

#include "model/arch/arch.hpp"

#include <fmt/format.h>

namespace keel::arch {
namespace {

constexpr ConfigDefaults cohere_defaults = {.max_positions = 8192,
                                            .tied_embeddings = true,
                                            .norm_eps_key = "layer_norm_eps",
                                            .norm_eps = 1e-5};
constexpr LayerNames cohere_names = {.ffn_norm = ""};

void configure_cohere(const model::ConfigReader &in, ModelConfig &config) {
    read_attention_bias(in, config);
    // Command R+ has layer norms on queries and keys, with a weight for each head.
    refuse_true(in, "use_qk_norm");
    // Programs have different defaults for this key.
    const auto rope = in.object("rope_parameters");
    if (!in.has("rope_theta") && !(rope && rope->has("rope_theta")))
        in.refuse("rope_theta", "a number");
    config.layer_norm = true;
    config.parallel_blocks = true;
    config.rope_interleaved = true;
    config.logit_scale = in.number("logit_scale", 1e-6, 1e6, 0.0625);
}

// Some keys of Cohere 2's configs are fixed in the model's code. Another value means another model.
void check_fixed_keys(const model::ConfigReader &in) {
    for (const char *key : {"use_parallel_block", "use_gated_activation"}) {
        if (!in.boolean(key, true)) in.refuse(key, "true");
    }
    if (in.text("position_embedding_type", "rope_gptj") != "rope_gptj")
        in.refuse("position_embedding_type", "rope_gptj");
    if (in.number("rotary_pct", 0, 1, 1) != 1) in.refuse("rotary_pct", "1");
}

void configure_cohere2(const model::ConfigReader &in, ModelConfig &config) {
    configure_cohere(in, config);
    check_fixed_keys(in);
    // RoPE depends on the window, so Keel cannot tell what a model without a window means.
    if (in.is_null("sliding_window")) in.refuse("sliding_window", "a number of tokens");
    const int64_t pattern = in.integer("sliding_window_pattern", 1, INT32_MAX, 4);
    read_sliding_window(in, config, 4096,
                        [&](int64_t layer) { return (layer + 1) % pattern != 0; });
    std::vector<bool> without;
    for (size_t i = 0; i < static_cast<size_t>(config.layers); ++i)
        without.push_back(config.window(i) == 0);
    set_layers_without_rope(config, std::move(without));
}

} // namespace

constinit const Architecture cohere = {"CohereForCausalLM", "cohere", cohere_defaults, cohere_names,
                                       configure_cohere};
constinit const Architecture cohere2 = {"Cohere2ForCausalLM", "cohere2", cohere_defaults,
                                        cohere_names, configure_cohere2};

} // namespace keel::arch
