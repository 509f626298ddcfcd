// OLMoE: Llama with a mixture of experts, and with RMS norms on queries and keys over all heads
// together.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_olmoe(const model::ConfigReader &in, ModelConfig &config) {
    read_attention_bias(in, config);
    config.qk_norm = config.qk_norm_joint = true;
    read_experts(in, config, "intermediate_size");
    config.experts.normalize = in.boolean("norm_topk_prob", false);
    if (in.has("clip_qkv"))
        in.refuse("clip_qkv", "null, because Keel does not clip queries, keys and values");
}

} // namespace

constinit const Architecture olmoe = {"OlmoeForCausalLM",
                                      "olmoe",
                                      {.max_positions = 4096, .norm_eps = 1e-5},
                                      {.router = "mlp.gate"},
                                      configure_olmoe};

} // namespace keel::arch
