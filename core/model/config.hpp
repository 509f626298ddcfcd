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

// Changes the angles of RoPE for contexts that are longer than the contexts of the first training.
struct RopeScaling {
    enum class Kind {
        none,
        linear,   // positions are divided by factor
        llama3,   // low frequencies are divided by factor, high frequencies are kept, and the
                  // divisor changes linearly in between
        factors,  // each frequency is divided by its own factor; only GGUF files have such factors
        yarn,     // low frequencies are divided by factor, high frequencies are kept, and the
                  // pairs in between are interpolated; cos and sin are multiplied by a number
        longrope, // each frequency is divided by its own factor. There is a list of factors for
                  // contexts up to original_context, and a list for longer contexts
    };
    Kind kind = Kind::none;
    double factor = 1;           // >= 1; for linear, llama3 and yarn
    double low_freq_factor = 1;  // for llama3
    double high_freq_factor = 1; // for llama3; > low_freq_factor
    // for llama3, yarn and longrope: original_max_position_embeddings, in tokens
    int64_t original_context = 0;
    std::vector<double> factors;      // for factors and for longrope's short contexts: [rot / 2]
    std::vector<double> long_factors; // for longrope's long contexts: [rot / 2]
    double attention_factor = 1;      // for yarn and longrope: cos and sin are multiplied by it
    double beta_fast = 32, beta_slow = 1; // for yarn: rotations within the original context at
                                          // which the interpolation begins and ends
    bool truncate = true; // for yarn: the ends of the interpolation are whole numbers of pairs

    bool operator==(const RopeScaling &) const = default;
};

// A feed-forward that is a mixture of experts. Each token uses some of the experts.
struct Experts {
    int64_t count = 0; // 0: the feed-forward has no experts
    int64_t used = 0;  // experts for each token, at most `count`
    int64_t size = 0;  // intermediate size of an expert
    // true: the weights of the chosen experts of a token are divided by their sum
    bool normalize = false;
    // Intermediate size of the expert that all tokens use, whose result is multiplied by a sigmoid.
    // 0: there is no such expert.
    int64_t shared_size = 0;

    bool operator==(const Experts &) const = default;
};

// The checked content of a config.json. Every number is in a plausible range. Products (elements of
// each weight, number of parameters) are far below 2^64. There is a member for each key that
// changes the computation.
struct ModelConfig {
    const Architecture *architecture = nullptr; // not NULL after parsing; points to static data

    int64_t hidden_size = 0;
    int64_t intermediate_size = 0;
    int64_t layers = 0;
    int64_t heads = 0;    // number of query heads
    int64_t kv_heads = 0; // a divisor of heads
    int64_t head_dim = 0; // an even number
    int64_t rot = 0;      // number of elements of a head that RoPE rotates; even, at most head_dim
    int64_t vocab_size = 0;
    int64_t max_positions = 0; // context length in tokens for which the model was made
    double rms_norm_eps = 0;   // added under the square root of all norms
    double rope_theta = 0;
    RopeScaling rope_scaling;
    // true: RoPE rotates neighbouring elements of a head together; false: the elements i and
    // i + rot / 2
    bool rope_interleaved = false;
    bool tied_embeddings = false; // the output projection is the embedding matrix

    // Differences between architectures. The defaults are those of Llama 2.
    bool qkv_bias = false;           // the q, k and v projections have biases
    bool attention_out_bias = false; // the projection after attention has a bias
    bool mlp_bias = false;
    bool qk_norm = false; // RMS norms on queries and keys before RoPE
    // The norms on queries and keys: true: one norm over the elements of all heads together; false:
    // a norm on each head
    bool qk_norm_joint = false;
    Experts experts;       // instead of a feed-forward of intermediate_size
    bool pre_norms = true; // norms on the inputs of attention and feed-forward
    // Norms on the outputs of attention and feed-forward, before they are added to the residual
    // stream
    bool post_norms = false;
    bool layer_norm = false; // norms are layer norms without bias; false: RMS norms
    // Attention and feed-forward have the same input, after one norm, and both are added to it
    bool parallel_blocks = false;
    double norm_offset =
        0; // added to the weights of all norms at load: 1 if files store w and the factor is 1 + w
    Activation activation = Activation::silu;
    double embedding_scale = 1; // embeddings are multiplied by this number; the output projection
                                // is not
    // the outputs of attention and feed-forward are multiplied by this number before they are added
    // to the residual stream
    double residual_scale = 1;
    double logit_scale = 1; // the model's logits are multiplied by this number
    // attention logits are divided by its square root; if absent, by the square root of head_dim
    std::optional<double> query_scalar;
    std::optional<double> attention_multiplier; // factor of q . k; if present, instead of the above
    // Queries are multiplied by 1 + beta * ln(1 + floor(position / context)). beta 0: they are not.
    double query_scale_beta = 0;
    int64_t query_scale_context = 0; // in tokens
    double query_scale(int64_t position) const;
    double attention_softcap = 0; // the c of c * tanh(logit / c) in attention; 0: no cap
    double logit_softcap = 0;     // the c of c * tanh(logit / c) on the model's logits; 0: no cap
    // in the layers with a window, a query attends to keys that are less than this number of
    // positions back
    std::optional<int64_t> sliding_window;
    // [layers]; true for layers with a window; empty if the model has no window
    std::vector<bool> sliding_layers;
    std::optional<double>
        local_rope_theta; // theta of the layers with a window, which then have no RoPE scaling
    std::vector<bool> no_rope_layers; // [layers]; true for layers without RoPE; empty: all have it

    std::optional<int64_t> bos_id;
    std::vector<int64_t> eos_ids; // ascending, without duplicates; may be empty
    // "torch_dtype" of the file, only for display; the tensors have the real types
    std::string stored_dtype;

    int64_t q_size() const { return heads * head_dim; }
    int64_t kv_size() const { return kv_heads * head_dim; }
    double attention_scale() const; // factor of q . k
    // Returns the window of a layer in tokens, or 0 if the layer has no window.
    int64_t window(size_t layer) const {
        return layer < sliding_layers.size() && sliding_layers[layer] ? sliding_window.value_or(0)
                                                                      : 0;
    }
    bool has_rope(size_t layer) const {
        return layer >= no_rope_layers.size() || !no_rope_layers[layer];
    }
    // Returns true if the layer has its own RoPE frequencies, or no RoPE: see own_rope().
    bool has_own_rope(size_t layer) const {
        return !has_rope(layer) || (local_rope_theta && window(layer) > 0);
    }
    bool has_two_ropes() const { return local_rope_theta || !no_rope_layers.empty(); }
    // The number of intermediate values that a layer computes for a token, over all experts that
    // the token uses.
    int64_t active_intermediate() const {
        return experts.count == 0 ? intermediate_size
                                  : experts.used * experts.size + experts.shared_size;
    }
    // Number of weights of the whole model. A tied matrix counts once.
    uint64_t parameter_count() const { return parameters(experts.count); }
    // The same without the weights of experts that a token does not use.
    uint64_t active_parameter_count() const { return parameters(experts.used); }

  private:
    uint64_t parameters(int64_t counted_experts) const;
};

// Parses the text of a config.json. Every error begins with `name`. Throws Error(input), for
// example
// models/x/config.json:7: num_attention_heads: expected an integer from 1 to 65536, found "abc"
ModelConfig parse_model_config(std::string_view text, std::string_view name);
// Parses a document that the program made from the keys of another file.
ModelConfig parse_model_config(const JsonDocument &document);

// Reads FOLDER/config.json, and the end tokens of FOLDER/generation_config.json if that file
// exists. Chat models list more end tokens in generation_config.json than in config.json.
ModelConfig load_model_config(const std::filesystem::path &folder);

// Adds the eos_token_id of a generation_config.json to config.eos_ids. Reads no other key of that
// file.
void add_generation_config(ModelConfig &config, std::string_view text, std::string_view name);

} // namespace keel
