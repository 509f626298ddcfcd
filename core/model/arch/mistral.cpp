// Mistral 7B and every other model that names MistralForCausalLM (Nemo, Small 24B text). They are
// like Llama. The first version has a window on the attention of every layer. In some models the
// head size is not hidden / heads. Ministral 8B has a window in some layers ("layer_types").

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

// If "sliding_window" is null, there is no window (7B from v0.2 on). If the key is absent, the
// window is 4096, as in the code of the model's authors.
void configure_mistral(const model::ConfigReader &in, ModelConfig &config) {
    if (in.is_null("sliding_window")) return;
    config.sliding_window = in.integer("sliding_window", 1, INT32_MAX, 4096);
    config.sliding_layers.assign(static_cast<size_t>(config.layers), true);
}

void configure_ministral(const model::ConfigReader &in, ModelConfig &config) {
    if (in.is_null("sliding_window")) return;
    read_sliding_window(in, config, 4096, [](int64_t) { return true; });
}

} // namespace

constinit const Architecture mistral = {"MistralForCausalLM",
                                        "mistral",
                                        {.kv_heads = 8, .max_positions = 131072},
                                        {},
                                        configure_mistral};
constinit const Architecture ministral = {"MinistralForCausalLM",
                                          "ministral",
                                          {.kv_heads = 8, .max_positions = 131072},
                                          {},
                                          configure_ministral};

} // namespace keel::arch
