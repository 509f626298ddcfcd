#pragma once

#include "graph/step_tap.hpp"
#include "kv/inputs/context_repeat.hpp"
#include "kv/store/layer_caches.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace keel {

// Passes the by-products of an engine's layers to the policy's tap, for the layers on which the
// policy acts. The policy's tap numbers only these layers, from 0. Layers with an attention window
// have no by-products.
class LayerTap final : public StepTap {
  public:
    explicit LayerTap(const std::vector<bool> &has_window);

    // Returns the tap that the graph must get in place of `tap`. Returns NULL if `tap` is NULL.
    // Valid until the next call.
    StepTap *over(StepTap *tap);

    Places places(uint32_t layer) override;
    void after_attention(uint32_t layer, const Tensor &q) override;
    bool is_usual() const override { return tap_->is_usual(); }

  private:
    // [layers of the engine]: the number of the layer for the policy's tap, or -1 for a layer with
    // a window. If empty, engine and tap use the same numbers.
    std::vector<int32_t> numbers_;
    StepTap *tap_ = nullptr;
};

// Repeats a context for a policy (KEEL_NEED_REPLAY), on all layers. Layers with a window use a copy
// of their cache.
class LayerRepeat final : public SequenceForward {
  public:
    // All arguments must outlive this object. `seen`: the position at which each repetition of the
    // context begins.
    LayerRepeat(LayerCaches &caches, SequenceForward &forward, LayerTap &tap, int64_t seen)
        : caches_(caches), forward_(forward), tap_(tap), seen_(seen) {}
    ~LayerRepeat() { caches_.end_repeat(); }
    LayerRepeat(const LayerRepeat &) = delete;
    LayerRepeat &operator=(const LayerRepeat &) = delete;

    std::span<const int32_t> tokens() const override { return forward_.tokens(); }
    std::span<const int32_t> instruction(bool from_words) const override {
        return forward_.instruction(from_words);
    }
    std::span<const int32_t> opening() const override { return forward_.opening(); }
    int64_t skipped() const override { return forward_.skipped(); }
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 StepTap &tap) override;
    uint64_t peak_window_bytes() const { return peak_; }

  private:
    LayerCaches &caches_;
    SequenceForward &forward_;
    LayerTap &tap_;
    int64_t seen_;
    uint64_t peak_ = 0;
};

} // namespace keel
