#pragma once

#include "model/source.hpp"
#include "numbers/quantize.hpp"
#include "ops/executor.hpp"
#include "platform/memory.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// The layers first to end - 1 of a model.
struct LayerRange {
    int64_t first = 0, end = 0;
    int64_t count() const { return end - first; }
    bool operator==(const LayerRange &) const = default;
};

// How weights are loaded from their files.
struct LoadOptions {
    // The layers to load. nullopt: all layers. The embedding is loaded with the model's first
    // layer, and the output projection with its last layer.
    std::optional<LayerRange> part;
    keel_dtype dtype = KEEL_DTYPE_NONE; // the type to which matrices are converted at load; NONE:
                                        // the stored type
    // The types that the device takes in addition to the common ones, see
    // keel_ctx_info.weight_dtypes. ModelWeights reads them from its device.
    uint64_t weight_dtypes = 0;
    uint32_t max_m = 512;             // largest number of tokens of a step
    ParallelFor parallel;             // for conversions; empty: one thread
    std::optional<MemoryInfo> memory; // the memory for the weights; empty: the system's memory
    // Called from time to time with the progress. It may throw an exception to stop loading.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

// The bytes that loading with these options reads from files (`stored`), and the bytes of the
// loaded matrices in the chosen dtype (`loaded`). `per_token`: the bytes of matrices that a decode
// step reads.
struct WeightBytes {
    uint64_t stored = 0, loaded = 0, per_token = 0;
};
WeightBytes weight_bytes(const ModelSource &source, const LoadOptions &options);

// A matrix that is stored as several weights, each with some of its rows, in order. A file with
// mixed K types can store the rows of q, k and v in different types. Then neighbouring rows with
// the same type form one weight. The parts are equal on every device, so that all devices have the
// same ops.
using RowParts = std::vector<std::unique_ptr<Weight>>;

// The weights of a decoder layer. Matrices are [out, in]. Matrices that read the same input are
// joined. Norms hold the factor itself, even if the file stores the factor minus 1
// (ModelConfig::norm_offset).
struct LayerWeights {
    Tensor attention_norm;                 // f32 [hidden]
    RowParts qkv;                          // [q_size + 2 * kv_size, hidden]: rows of q, k, v
    Tensor qkv_bias;                       // f32 [q_size + 2 * kv_size], or empty
    Tensor q_norm, k_norm;                 // f32 [head_dim], or empty
    std::unique_ptr<Weight> attention_out; // [hidden, q_size]
    Tensor attention_out_bias;             // f32 [hidden], or empty
    Tensor post_attention_norm;            // f32 [hidden], or empty
    Tensor ffn_norm;                       // f32 [hidden]
    RowParts gate_up;                      // [2 * intermediate, hidden]: rows of gate, then of up
    Tensor gate_up_bias;                   // f32 [2 * intermediate], or empty
    std::unique_ptr<Weight> down;          // [hidden, intermediate]
    Tensor down_bias;                      // f32 [hidden], or empty
    Tensor post_ffn_norm;                  // f32 [hidden], or empty
    // With experts. Then gate_up and down are those of the shared expert, or empty.
    std::unique_ptr<Weight> router;        // [experts, hidden]
    RowParts expert_gate_up;               // for each expert: rows of gate, then of up. Two weights
                                           // if the types differ: all gates, then all ups
    std::unique_ptr<Weight> expert_down;   // for each expert: [hidden, size]
    std::unique_ptr<Weight> shared_router; // [1, hidden]

    std::vector<Weight *> matrices() const; // all matrices of the layer
};

// A model's weights, or those of some of its layers, ready on the device of an executor. Keeps the
// source mapped as long as a backend reads from it in place. During loading, releases the pages of
// each tensor that are no longer needed.
class ModelWeights {
  public:
    ModelWeights(Executor &executor, std::shared_ptr<const ModelSource> source,
                 const LoadOptions &options);

    const ModelConfig &config() const { return source_->config(); }
    const ModelSource &source() const { return *source_; }
    const LayerRange &part() const { return part_; }
    bool has_embedding() const { return embedding_ != nullptr && part_.first == 0; }
    bool has_output() const { return output_ != nullptr || tied_output_; }
    Weight &embedding() { return *embedding_; } // [vocab, hidden]
    // The output projection, [vocab, hidden]. If the model has no separate output projection, this
    // is the embedding.
    Weight &output() { return output_ ? *output_ : *embedding_; }
    const Tensor &final_norm() const { return final_norm_; } // f32 [hidden]
    LayerWeights &layer(size_t i) { return layers_[i]; }     // layer i of the loaded layers
    // Bytes of the matrices that a decode step of this many tokens reads. The bandwidth in reports
    // is computed from this number. With experts, a step reads each expert that a token of the step
    // chooses. The number of these experts is an estimate: the choices of the tokens are
    // independent, and all experts are equally likely.
    uint64_t bytes_per_token(const Device &device, uint32_t tokens = 1) const;
    uint64_t bytes(const Device &device) const; // bytes on the device
    std::string dtype_name() const; // types of the matrices: "q8_0"; "bf16, f32" if they differ

  private:
    class Loader;
    std::shared_ptr<const ModelSource> source_;
    LayerRange part_;
    bool tied_output_ = false;
    std::unique_ptr<Weight> embedding_, output_;
    Tensor final_norm_;
    std::vector<LayerWeights> layers_;
};

} // namespace keel
