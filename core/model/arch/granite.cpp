// Granite 3 (dense): Llama with four factors: of the embeddings, of the dot products of attention,
// of the outputs of attention and feed-forward, and of the logits.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_granite(const model::ConfigReader &in, ModelConfig &config) {
    read_attention_bias(in, config);
    config.mlp_bias = in.boolean("mlp_bias", false);
    const auto factor = [&](const char *key) { return in.number(key, 1e-6, 1e6, 1.0); };
    config.embedding_scale = factor("embedding_multiplier");
    config.attention_multiplier = factor("attention_multiplier");
    config.residual_scale = factor("residual_multiplier");
    config.logit_scale = 1 / factor("logits_scaling");
}

} // namespace

constinit const Architecture granite = {"GraniteForCausalLM", "granite", {}, {}, configure_granite};

} // namespace keel::arch
