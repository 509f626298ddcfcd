#include "base/error.hpp"
#include "model/config.hpp"

#include <cstdlib>

// Input: any text. It gives either a keel::Error, or a config whose numbers can be multiplied
// without overflow.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    try {
        keel::ModelConfig config = keel::parse_model_config(text, "config.json");
        const bool sane =
            config.architecture != nullptr && config.heads % config.kv_heads == 0 &&
            config.head_dim % 2 == 0 && config.parameter_count() > 0 &&
            config.parameter_count() <= (uint64_t{1} << 42) && config.rope_theta >= 1 &&
            config.rope_scaling.factor >= 1 && config.rms_norm_eps > 0 &&
            config.attention_scale() > 0 && config.embedding_scale > 0 && config.rot % 2 == 0 &&
            config.rot >= 2 && config.rot <= config.head_dim &&
            (config.sliding_layers.empty() ||
             (std::ssize(config.sliding_layers) == config.layers && config.sliding_window > 0));
        if (!sane) std::abort();
        for (const int64_t id : config.eos_ids) {
            if (id < 0 || id >= config.vocab_size) std::abort();
        }
        keel::add_generation_config(config, text, "generation_config.json");
    } catch (const keel::Error &) {
    }
    return 0;
}
