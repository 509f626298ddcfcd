#pragma once

#include "model/source.hpp"

#include <string>
#include <vector>

namespace keel {

// The tensors of the files that form one weight of the graph: matrices that are joined by rows, or
// vectors that are concatenated.
struct WeightParts {
    struct Part {
        std::string tensor;
        int64_t rows; // for a vector: its elements
    };
    std::vector<Part> parts; // empty if the model does not have this weight
    int64_t cols = 0;        // columns of each matrix; 0: the parts are vectors
    // Number of experts; the parts of expert 0 come first, then those of expert 1, and so on. 0:
    // the weight has no experts.
    int64_t experts = 0;
    bool as_f32 = false; // the matrix is small and always loaded in f32, because rounding it may
                         // change which experts are chosen

    bool empty() const { return parts.empty(); }
};

// The tensors of a layer's weights. The members have the names of LayerWeights.
struct LayerParts {
    WeightParts attention_norm, qkv, qkv_bias, q_norm, k_norm, attention_out, attention_out_bias,
        post_attention_norm, ffn_norm, gate_up, gate_up_bias, down, down_bias, post_ffn_norm;
    // With experts. Then gate_up and down are those of the shared expert, or empty.
    WeightParts router, expert_gate_up, expert_down, shared_router;

    std::vector<const WeightParts *> all() const;
};

// The only list of the tensors of a model. Keel uses it for the check before loading, and for
// loading.
struct ModelParts {
    WeightParts embedding, final_norm;
    WeightParts output; // empty if the embedding is used
};
ModelParts model_parts(const ModelConfig &config);
LayerParts layer_parts(const ModelConfig &config, int64_t layer);
// The weight's parts with these numbers among the parts of each expert: {0} of gate and up are the
// gates.
WeightParts expert_parts(const WeightParts &all, size_t first, size_t count);

// Checks that every tensor that config.json requires exists and has the right shape, and that no
// layer has more tensors. Reads no weights. Throws Error(input). Returns the names of other tensors
// that the model does not use.
std::vector<std::string> check_model_tensors(const ModelSource &source);

} // namespace keel
