#include "model/arch/arch.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel::arch {
namespace {

constexpr size_t max_layer_types = 4096;

bool slides_by_name(const model::ConfigReader &in, const std::string &type) {
    if (type == "sliding_attention") return true;
    if (type == "full_attention") return false;
    in.fail("layer_types",
            fmt::format("'{}' is not supported; supported: full_attention, sliding_attention",
                        printable(type)));
}

} // namespace

void read_attention_bias(const model::ConfigReader &in, ModelConfig &config) {
    config.qkv_bias = config.attention_out_bias = in.boolean("attention_bias", false);
}

void read_sliding_window(const model::ConfigReader &in, ModelConfig &config, int64_t fallback,
                         const std::function<bool(int64_t layer)> &slides) {
    const auto types = in.texts("layer_types", max_layer_types);
    if (!types.empty() && std::ssize(types) != config.layers) {
        in.refuse("layer_types", fmt::format("a type for each of {} layers", config.layers));
    }
    std::vector<bool> layers;
    for (int64_t i = 0; i < config.layers; ++i)
        layers.push_back(types.empty() ? slides(i)
                                       : slides_by_name(in, types[static_cast<size_t>(i)]));
    if (std::find(layers.begin(), layers.end(), true) == layers.end()) return;
    config.sliding_window = fallback > 0 ? in.integer("sliding_window", 1, INT32_MAX, fallback)
                                         : in.integer("sliding_window", 1, INT32_MAX);
    config.sliding_layers = std::move(layers);
}

void read_window_of_all_layers(const model::ConfigReader &in, ModelConfig &config,
                               int64_t fallback) {
    if (in.is_null("sliding_window") || (fallback == 0 && !in.has("sliding_window"))) return;
    config.sliding_window = in.integer("sliding_window", 1, INT32_MAX, fallback);
    config.sliding_layers.assign(static_cast<size_t>(config.layers), true);
}

void set_layers_without_rope(ModelConfig &config, std::vector<bool> without) {
    if (std::find(without.begin(), without.end(), true) == without.end()) return;
    config.no_rope_layers = std::move(without);
}

void refuse_true(const model::ConfigReader &in, const char *key) {
    if (in.boolean(key, false)) in.refuse(key, "false");
}

} // namespace keel::arch
