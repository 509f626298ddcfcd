#include "model/arch/arch.hpp"

namespace keel::arch {

void read_attention_bias(const model::ConfigReader &in, ModelConfig &config) {
    config.qkv_bias = config.attention_out_bias = in.boolean("attention_bias", false);
}

} // namespace keel::arch
