// Mistral 7B and every other model that names MistralForCausalLM (Nemo, Small 24B text). They are
// like Llama. The first version has a window on the attention of every layer. In some models the
// head size is not hidden / heads. Ministral 8B has a window in some layers ("layer_types").
// Ministral 3 has YaRN, and a factor of queries that depends on the position.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

// If "sliding_window" is null, there is no window (7B from v0.2 on). If the key is absent, the
// window is 4096, as in the code of the model's authors.
void configure_mistral(const model::ConfigReader &in, ModelConfig &config) {
    read_window_of_all_layers(in, config, 4096);
}

void configure_ministral(const model::ConfigReader &in, ModelConfig &config) {
    if (in.is_null("sliding_window")) return;
    read_sliding_window(in, config, 4096, [](int64_t) { return true; });
}

void configure_ministral3(const model::ConfigReader &in, ModelConfig &config) {
    if (config.query_scale_beta != 0 && config.query_scale_context == 0)
        in.fail("rope_parameters", "llama_4_scaling_beta needs the rope_type yarn");
    if (!in.has("rope_parameters") && !in.has("rope_scaling"))
        in.refuse("rope_parameters", "an object");
    read_window_of_all_layers(in, config);
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
constinit const Architecture ministral3 = {"Ministral3ForCausalLM",
                                           "ministral3",
                                           {.kv_heads = 8,
                                            .head_dim = 128,
                                            .max_positions = 262144,
                                            .rope_theta = 1e6,
                                            .scales_queries = true,
                                            .norm_eps = 1e-5},
                                           {},
                                           configure_ministral3};

} // namespace keel::arch
