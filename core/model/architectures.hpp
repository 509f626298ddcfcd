#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace keel {

struct ModelConfig;
namespace model {
class ConfigReader;
}

// What the gate of the feed-forward network goes through.
enum class Activation {
    silu,
    gelu_tanh, // the tanh approximation: "gelu_pytorch_tanh"
    gelu,      // with erf
};

// What a config.json means where it says nothing: the defaults of the architecture's own code.
struct ConfigDefaults {
    int64_t kv_heads = 0; // 0: as many as heads
    int64_t head_dim = 0; // 0: hidden_size / heads
    int64_t max_positions = 2048;
    double rope_theta = 10000;
    double local_rope_theta = 0; // 0: all layers have one theta
    bool tied_embeddings = false;
    const char *activation_key = "hidden_act";
    std::string_view activation = "silu";
};

// Names of a layer's tensors between "model.layers.N." and ".weight" or ".bias".
struct LayerNames {
    std::string_view attention_norm = "input_layernorm";
    std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
    std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
    std::string_view attention_out = "self_attn.o_proj";
    std::string_view post_attention_norm; // only where the model has post_norms
    std::string_view ffn_norm = "post_attention_layernorm";
    std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
    std::string_view post_ffn_norm; // only where the model has post_norms
};

// A model architecture that Keel can run, in a file of its own below core/model/arch: how its
// config.json is read. What the graph does differently is then data in ModelConfig.
struct Architecture {
    std::string_view name;       // as in config.json's "architectures", e.g. "LlamaForCausalLM"
    std::string_view model_type; // as in "model_type", e.g. "llama"
    ConfigDefaults defaults;
    LayerNames names;
    // Reads what is particular to it; called when sizes, RoPE and activation stand in `config`.
    // Throws Error(input).
    void (*read)(const model::ConfigReader &in, ModelConfig &config);
};

std::span<const Architecture *const> architectures();

// The one with that name ("LlamaForCausalLM"), or nullptr.
const Architecture *find_architecture(std::string_view name);

// "LlamaForCausalLM, ...": for errors.
std::string architecture_names();

// Why an architecture that is well known is not there, for the error that refuses it; empty if
// nothing is known of it.
std::string_view why_not_supported(std::string_view name);

} // namespace keel
