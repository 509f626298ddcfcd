// SmolLM 3: Llama, but every fourth layer has no RoPE. The layers without RoPE may have a window.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

// In "no_rope_layers", 1 stands for a layer with RoPE, and 0 for a layer without RoPE. The list may
// be longer than the model.
void configure_smollm3(const model::ConfigReader &in, ModelConfig &config) {
    read_attention_bias(in, config);
    config.mlp_bias = in.boolean("mlp_bias", false);
    const auto rope = in.integers("no_rope_layers", 0, 1, 4096);
    const int64_t interval = in.integer("no_rope_layer_interval", 1, INT32_MAX, 4);
    if (!rope.empty() && std::ssize(rope) < config.layers)
        in.refuse("no_rope_layers", "a number for each layer");
    std::vector<bool> without;
    for (int64_t i = 0; i < config.layers; ++i)
        without.push_back(rope.empty() ? (i + 1) % interval == 0
                                       : rope[static_cast<size_t>(i)] == 0);
    set_layers_without_rope(config, std::move(without));
    if (!in.boolean("use_sliding_window", false) || in.is_null("sliding_window")) return;
    read_sliding_window(in, config, 0,
                        [&](int64_t i) { return !config.has_rope(static_cast<size_t>(i)); });
}

} // namespace

constinit const Architecture smollm3 = {
    "SmolLM3ForCausalLM",
    "smollm3",
    {.kv_heads = 4, .max_positions = 32768, .rope_theta = 2e6, .tied_embeddings = true},
    {},
    configure_smollm3};

} // namespace keel::arch
