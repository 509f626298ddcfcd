#pragma once

#include "graph/rope_tables.hpp"
#include "graph/weights.hpp"

namespace keel {

// The layers that a graph runs: their weights and RoPE tables. `layer` counts from the first layer
// of the graph. number(layer) is the number of the layer in the model.
class Decoder {
  public:
    Decoder(ModelWeights &weights, int64_t rope_rows, int64_t context = 0)
        : weights_(weights), ropes_(weights.config(), rope_rows, context) {}

    const ModelConfig &config() const { return weights_.config(); }
    bool has_embedding() const { return weights_.has_embedding(); }
    bool has_output() const { return weights_.has_output(); }
    ModelWeights &weights() const { return weights_; }
    LayerWeights &layer(size_t layer) const { return weights_.layer(layer); }
    size_t layers() const { return static_cast<size_t>(weights_.part().count()); }
    size_t number(size_t layer) const { return layer + static_cast<size_t>(weights_.part().first); }
    int64_t window(size_t layer) const { return config().window(number(layer)); }
    LayerRopes &ropes() { return ropes_; }
    const RopeTables &rope(size_t layer) const { return ropes_.of(number(layer)); }

  private:
    ModelWeights &weights_;
    LayerRopes ropes_;
};

} // namespace keel
