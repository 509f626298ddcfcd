#pragma once

#include "graph/weights.hpp"
#include "model/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// Knows which layers of a model have an attention window, for a part of the model (all layers, or
// the layers of one engine). A window that is at least as long as the context does not count.
// Policies act on the layers without a window. If all layers of the model have a window, policies
// act on all layers. Layers on which no policy acts hold only the tokens of their window.
class LayerSplit {
  public:
    LayerSplit() = default;
    // Describes the layers `part` of the model.
    LayerSplit(const ModelConfig &model, const LayerRange &part, int64_t context);
    // Describes all layers.
    LayerSplit(const ModelConfig &model, int64_t context)
        : LayerSplit(model, LayerRange{0, model.layers}, context) {}

    // Length of the window in tokens; 0 if no layer has a window.
    int64_t window() const { return window_; }
    // Returns true if all layers of the part have a window. Then they share one cache.
    bool all_windowed() const { return window_ > 0 && has_window_.empty() && part_windowed_ > 0; }
    // Returns true if policies act on no layer of the part, because the layers without a window are
    // in other parts.
    bool only_holds() const { return all_windowed() && model_windowed_ < model_layers_; }
    // Tells for each layer of the part whether it has a window. Empty unless the part has layers
    // with and without a window.
    const std::vector<bool> &has_window() const { return has_window_; }
    uint32_t windowed() const { return has_window_.empty() ? 0 : part_windowed_; }
    // acts_on() returns the number of layers of the part that are in the main cache. numbers()
    // returns the numbers of these layers in the model.
    uint32_t acts_on() const { return static_cast<uint32_t>(numbers_.size()); }
    const std::vector<uint32_t> &numbers() const { return numbers_; }
    // first() counts the layers on which policies act in the parts before this part. of_model()
    // counts the layers on which policies act in the whole model.
    uint32_t first() const { return first_; }
    uint32_t of_model() const {
        return model_windowed_ == model_layers_ ? model_layers_ : model_layers_ - model_windowed_;
    }
    uint32_t model_windowed() const { return model_windowed_; }
    uint32_t model_layers() const { return model_layers_; }
    // Returns "the policy acts on 3 of 18 layers; the other 15 layers hold only their window of 512
    // tokens". Empty if no layer has a window.
    std::string text() const;

  private:
    int64_t window_ = 0;
    uint32_t model_layers_ = 0, model_windowed_ = 0, part_windowed_ = 0, first_ = 0;
    std::vector<bool> has_window_;
    std::vector<uint32_t> numbers_;
};

} // namespace keel
