// Mistral 7B and what says MistralForCausalLM (Nemo, Small 24B text): Llama, with a window on every
// layer's attention in the first version and with heads of their own size in some.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

// null: no window (from 7B v0.2 on). Left out: 4096, as the authors' code has it.
void configure_mistral(const model::ConfigReader &in, ModelConfig &config) {
    if (in.is_null("sliding_window")) return;
    config.sliding_window = in.integer("sliding_window", 1, INT32_MAX, 4096);
    config.sliding_layers.assign(static_cast<size_t>(config.layers), true);
}

} // namespace

constinit const Architecture mistral = {"MistralForCausalLM",
                                        "mistral",
                                        {.kv_heads = 8, .max_positions = 131072},
                                        {},
                                        configure_mistral};

} // namespace keel::arch
