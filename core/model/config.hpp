#pragma once

#include "model/architectures.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

class JsonDocument;

// How RoPE's angles are changed for contexts longer than the model was first trained on.
struct RopeScaling {
    enum class Kind {
        none,
        linear,  // positions divided by factor
        llama3,  // low frequencies divided by factor, high ones kept, a ramp in between
        factors, // each frequency divided by its own factor; no config.json says this, GGUF files
                 // do
    };
    Kind kind = Kind::none;
    double factor = 1;            // >= 1; linear and llama3
    double low_freq_factor = 1;   // llama3
    double high_freq_factor = 1;  // llama3, > low_freq_factor
    int64_t original_context = 0; // llama3: original_max_position_embeddings, tokens
    std::vector<double> factors;  // factors: [head_dim / 2]
};

// What config.json says about a model, checked: every number lies in a sane range and the products
// (elements of each weight, number of parameters) fit in 64 bits with room to spare. A member for
// each key of the file that changes what is computed.
struct ModelConfig {
    const Architecture *architecture = nullptr; // never null after parsing; static data

    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    int64_t layers = 0;
    int64_t heads = 0;    // query heads
    int64_t kv_heads = 0; // divides heads
    int64_t head_dim = 0; // even
    int64_t vocab_size = 0;
    int64_t max_positions = 0; // context length that the model was made for, tokens
    double rms_norm_eps = 0;
    double rope_theta = 0;
    RopeScaling rope_scaling;
    bool tied_embeddings = false; // the output projection is the embedding matrix

    // What differs between architectures. As it stands here it is Llama 2.
    bool qkv_bias = false;           // the q, k and v projections have biases
    bool attention_out_bias = false; // and the projection behind attention
    bool mlp_bias = false;
    bool qk_norm = false;    // RMS norm on each head's query and key before RoPE
    bool post_norms = false; // RMS norms on what attention and feed-forward give, before it joins
                             // the residual stream
    double norm_offset =
        0; // added to all norms' weights at load: 1 where files hold w of a factor (1 + w)
    Activation activation = Activation::silu;
    double embedding_scale = 1; // embeddings are multiplied by it; the output projection never is
    std::optional<double>
        query_scalar; // attention logits are divided by its root; absent: by that of head_dim
    double attention_softcap = 0; // c of c * tanh(logit / c) in attention; 0: none
    double logit_softcap = 0;     // the same on the model's logits; 0: none
    std::optional<int64_t>
        sliding_window; // a query sees keys less than so many positions back, in the layers that
    std::vector<bool> sliding_layers; // are true here, [layers]; empty if there is no window
    std::optional<double>
        local_rope_theta; // theta of those layers, which then have no RoPE scaling

    std::optional<int64_t> bos_id;
    std::vector<int64_t> eos_ids; // ascending, each once; may be empty
    std::string
        stored_dtype; // "torch_dtype" as written, for display; the tensors say what they really are

    int64_t q_size() const { return heads * head_dim; }
    int64_t kv_size() const { return kv_heads * head_dim; }
    double attention_scale() const; // of q . k
    // The window of a layer in tokens; 0: it sees all.
    int64_t window(size_t layer) const {
        return layer < sliding_layers.size() && sliding_layers[layer] ? sliding_window.value_or(0)
                                                                      : 0;
    }
    bool has_local_rope(size_t layer) const { return local_rope_theta && window(layer) > 0; }
    // Weights of the whole model; a tied matrix counts once.
    uint64_t parameter_count() const;
};

// Parses the text of a config.json. Every error begins with `name`. Throws Error(input), e.g.
// models/x/config.json:7: num_attention_heads: expected an integer from 1 to 65536, found "abc"
ModelConfig parse_model_config(std::string_view text, std::string_view name);
// The same of a document that the program made of another file's keys.
ModelConfig parse_model_config(const JsonDocument &document);

// Reads FOLDER/config.json and, where there is one, the end tokens of
// FOLDER/generation_config.json: chat models list more end tokens there than in config.json.
ModelConfig load_model_config(const std::filesystem::path &folder);

// Adds the eos_token_id of a generation_config.json to config.eos_ids; nothing else in that file is
// read.
void add_generation_config(ModelConfig &config, std::string_view text, std::string_view name);

} // namespace keel
