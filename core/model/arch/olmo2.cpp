// OLMo 2 and OLMo 3: norms only on the outputs of attention and feed-forward, and RMS norms on
// queries and keys over all heads together. OLMo 3 has a window in three of four layers. In OLMo 3,
// RoPE scaling (YaRN) applies only to the layers without a window.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

constexpr LayerNames olmo2_names = {.attention_norm = "",
                                    .post_attention_norm = "post_attention_layernorm",
                                    .ffn_norm = "",
                                    .post_ffn_norm = "post_feedforward_layernorm"};

void configure_olmo2(const model::ConfigReader &in, ModelConfig &config) {
    read_attention_bias(in, config);
    config.pre_norms = false;
    config.post_norms = true;
    config.qk_norm = config.qk_norm_joint = true;
}

void configure_olmo3(const model::ConfigReader &in, ModelConfig &config) {
    configure_olmo2(in, config);
    if (!in.is_null("sliding_window"))
        read_sliding_window(in, config, 4096, [](int64_t layer) { return (layer + 1) % 4 != 0; });
    if (config.sliding_window && config.rope_scaling.kind != RopeScaling::Kind::none)
        config.local_rope_theta = config.rope_theta;
}

} // namespace

constinit const Architecture olmo2 = {
    "Olmo2ForCausalLM", "olmo2", {.norm_eps = 1e-5}, olmo2_names, configure_olmo2};
constinit const Architecture olmo3 = {
    "Olmo3ForCausalLM", "olmo3", {.norm_eps = 1e-5}, olmo2_names, configure_olmo3};

} // namespace keel::arch
