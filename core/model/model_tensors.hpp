#pragma once

#include "model/source.hpp"

#include <string>
#include <vector>

namespace keel {

// One weight of the graph as the tensors that files hold of it: matrices joined by rows, or short
// vectors one after the other.
struct WeightParts {
    struct Part {
        std::string tensor;
        int64_t rows; // of a vector: elements
    };
    std::vector<Part> parts; // empty: the model has no such weight
    int64_t cols = 0;        // of each matrix; 0: the parts are vectors

    bool empty() const { return parts.empty(); }
};

// What a layer's weights are made of; members as in LayerWeights.
struct LayerParts {
    WeightParts attention_norm, qkv, qkv_bias, q_norm, k_norm, attention_out, attention_out_bias,
        post_attention_norm, ffn_norm, gate_up, gate_up_bias, down, down_bias, post_ffn_norm;

    std::vector<const WeightParts *> all() const;
};

// The one list of the tensors that a model consists of: what is checked before loading and what is
// loaded.
struct ModelParts {
    WeightParts embedding, final_norm;
    WeightParts output; // empty where the embedding is used
};
ModelParts model_parts(const ModelConfig &config);
LayerParts layer_parts(const ModelConfig &config, int64_t layer);

// Checks that every tensor is there that the model's config.json asks for, with its shape; reads no
// weights. Throws Error(input). Returns the names of tensors that nothing asks for.
std::vector<std::string> check_model_tensors(const ModelSource &source);

} // namespace keel
