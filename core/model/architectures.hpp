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

// The activation of the gate in the feed-forward network.
enum class Activation {
    silu,
    gelu_tanh, // the tanh approximation: "gelu_pytorch_tanh"
    gelu,      // the exact form, with erf
};

// The meaning of keys that a config.json leaves out: the defaults in the architecture's original
// code.
struct ConfigDefaults {
    int64_t kv_heads = 0; // 0: as many KV heads as heads
    int64_t head_dim = 0; // 0: hidden_size / heads
    int64_t max_positions = 2048;
    double rope_theta = 10000;
    double local_rope_theta = 0; // 0: all layers have one theta
    bool tied_embeddings = false;
    // "partial_rotary_factor": the share of each head that RoPE rotates. 0: the architecture
    // rotates whole heads, and a config with another share is refused.
    double rotary_factor = 0;
    // RoPE's object may have "llama_4_scaling_beta", a factor of queries that depends on the
    // position.
    bool scales_queries = false;
    const char *norm_eps_key = "rms_norm_eps";
    double norm_eps = 1e-6;
    const char *activation_key = "hidden_act";
    std::string_view activation = "silu";
};

// Names of a layer's tensors between "model.layers.N." and ".weight" or ".bias".
struct LayerNames {
    std::string_view attention_norm = "input_layernorm";
    std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
    std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
    std::string_view attention_out = "self_attn.o_proj";
    std::string_view post_attention_norm; // only if the model has post_norms
    std::string_view ffn_norm = "post_attention_layernorm";
    std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
    std::string_view post_ffn_norm; // only if the model has post_norms
    // Tensors that hold the rows of several matrices, one after the other. Empty: each matrix is a
    // tensor.
    std::string_view qkv, gate_up;
    // Mixture of experts. The matrices of expert 3 are "mlp.experts.3.gate_proj" and so on.
    std::string_view router = {}; // empty: the architecture has no experts
    std::string_view experts = "mlp.experts";
    std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
    std::string_view shared_router = "mlp.shared_expert_gate";
    std::string_view shared_gate = "mlp.shared_expert.gate_proj",
                     shared_up = "mlp.shared_expert.up_proj",
                     shared_down = "mlp.shared_expert.down_proj";
};

// A model architecture that Keel can run. It describes how the architecture's config.json is read.
// Each architecture has its own file in core/model/arch. The graph takes all differences between
// architectures from ModelConfig.
struct Architecture {
    std::string_view name;       // name in "architectures" of a config.json: "LlamaForCausalLM"
    std::string_view model_type; // name in "model_type": "llama"
    ConfigDefaults defaults;
    LayerNames names;
    // Reads the keys that only this architecture has. It is called after sizes, RoPE and activation
    // are set in `config`. Throws Error(input).
    void (*read)(const model::ConfigReader &in, ModelConfig &config);
};

std::span<const Architecture *const> architectures();

// The architecture with this name ("LlamaForCausalLM"), or NULL.
const Architecture *find_architecture(std::string_view name);

// All names, "LlamaForCausalLM, ...", for error messages.
std::string architecture_names();

// The reason why a well-known architecture is not supported, for the error that refuses it. Empty
// if nothing is known about the architecture.
std::string_view why_not_supported(std::string_view name);

} // namespace keel
