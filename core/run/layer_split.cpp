#include "run/layer_split.hpp"

#include "kv/evict/eviction_log.hpp"

#include <fmt/format.h>

namespace keel {

LayerSplit::LayerSplit(const ModelConfig &model, const LayerRange &part, int64_t context)
    : model_layers_(static_cast<uint32_t>(model.layers)) {
    const auto is_windowed = [&](int64_t layer) {
        const int64_t window = model.window(static_cast<size_t>(layer));
        return window > 0 && window < context;
    };
    for (int64_t l = 0; l < model.layers; ++l) {
        if (!is_windowed(l)) continue;
        ++model_windowed_;
        window_ = model.window(static_cast<size_t>(l));
    }
    const bool has_other = model_windowed_ < model_layers_;
    for (int64_t l = part.first; l < part.end; ++l) part_windowed_ += is_windowed(l) ? 1 : 0;
    const bool is_mixed = part_windowed_ > 0 && part_windowed_ < part.count();
    for (int64_t l = part.first; l < part.end; ++l) {
        if (is_mixed) has_window_.push_back(is_windowed(l));
        if (!is_mixed || !is_windowed(l)) numbers_.push_back(static_cast<uint32_t>(l));
    }
    for (int64_t l = 0; l < part.first; ++l) first_ += has_other && is_windowed(l) ? 0 : 1;
}

std::string LayerSplit::text() const {
    if (model_windowed_ == 0) return {};
    if (model_windowed_ == model_layers_) {
        return fmt::format("a policy that evicts acts on all {} layers; without one they hold "
                           "their window of {} tokens",
                           model_layers_, window_);
    }
    return windows_text(model_windowed_, model_layers_, window_);
}

} // namespace keel
