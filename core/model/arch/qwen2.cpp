// Qwen 2 and 2.5: Llama with biases on q, k and v, but not on the output of attention.

#include "model/arch/arch.hpp"

namespace keel::arch {
namespace {

void configure_qwen2(const model::ConfigReader &in, ModelConfig &config) {
    config.qkv_bias = true;
    read_qwen_window(in, config);
}

} // namespace

// There is no window unless use_sliding_window is true. The window applies from layer
// max_window_layers on.
void read_qwen_window(const model::ConfigReader &in, ModelConfig &config) {
    if (!in.boolean("use_sliding_window", false) || in.is_null("sliding_window")) return;
    const int64_t first = in.integer("max_window_layers", 0, INT32_MAX, 28);
    read_sliding_window(in, config, 4096, [&](int64_t layer) { return layer >= first; });
}

constinit const Architecture qwen2 = {
    "Qwen2ForCausalLM", "qwen2", {.kv_heads = 32, .max_positions = 32768}, {}, configure_qwen2};

} // namespace keel::arch
