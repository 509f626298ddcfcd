// Writes the metadata of a model that was read from a folder.

#include "base/error.hpp"
#include "convert/gguf_write.hpp"
#include "model/gguf_model.hpp"

#include <cmath>

namespace keel::gguf {
namespace {

// Refuses a feature that no GGUF key can express, because a file without the feature would give
// other results.
[[noreturn]] void cannot_say(const ModelSource &source, std::string_view what) {
    throw_error(ErrorKind::input,
                "{}: GGUF cannot represent {}, so the GGUF file would generate other text than the "
                "model folder; use the model folder",
                source.path(), what);
}

uint32_t file_type(keel_dtype type) {
    switch (type) {
    case KEEL_DTYPE_F32: return 0;
    case KEEL_DTYPE_F16: return 1;
    case KEEL_DTYPE_Q4_0: return 2;
    case KEEL_DTYPE_Q8_0: return 7;
    default: return 32; // bf16
    }
}

void check_particular(const ModelSource &source, const ArchitectureName &row) {
    const ModelConfig &c = source.config();
    const int64_t largest = row.name == "gemma2" ? 46 : row.name == "gemma3" ? 62 : 0;
    const double scalar = c.layers == largest ? static_cast<double>(c.hidden_size / c.heads)
                                              : static_cast<double>(c.head_dim);
    if (c.query_scalar.value_or(scalar) != scalar)
        cannot_say(source, "this model's value of query_pre_attn_scalar");
    if (c.qkv_bias != c.attention_out_bias && row.name == "llama")
        cannot_say(source, "biases in only some of the attention projections");
    if (row.name.starts_with("qwen") && c.sliding_window)
        cannot_say(source, "the sliding window of a Qwen model");
    for (size_t i = 0; i < c.sliding_layers.size(); ++i) {
        const bool slides = row.name == "gemma2"   ? i % 2 == 0
                            : row.name == "gemma3" ? (i + 1) % 6 != 0
                                                   : true;
        if (c.sliding_layers[i] != slides)
            cannot_say(source, "this model's choice of layers with a sliding window");
    }
    if (row.name == "gemma3" && c.local_rope_theta.value_or(1e4) != 1e4)
        cannot_say(source, "this model's value of rope_local_base_freq");
    const Activation activation = row.factor_norms ? Activation::gelu_tanh : Activation::silu;
    if (c.activation != activation) cannot_say(source, "this model's activation function");
    if (row.factor_norms && !c.tied_embeddings)
        cannot_say(source, "a separate output projection in a Gemma model");
}

void add_rope(const ModelConfig &c, const std::string &front, GgufWriter &out) {
    out.add(front + "rope.dimension_count", static_cast<uint32_t>(c.head_dim));
    out.add(front + "rope.freq_base", static_cast<float>(c.rope_theta));
    if (c.rope_scaling.kind == RopeScaling::Kind::linear) {
        out.add(front + "rope.scaling.type", "linear");
        out.add(front + "rope.scaling.factor", static_cast<float>(c.rope_scaling.factor));
    }
}

} // namespace

const ArchitectureName &checked_architecture(const ModelSource &source) {
    const ArchitectureName *row = find_by_architecture(source.config().architecture->name);
    if (row == nullptr) cannot_say(source, source.config().architecture->name);
    check_particular(source, *row);
    return *row;
}

void add_model_metadata(const ModelSource &source, keel_dtype type, GgufWriter &out) {
    const ArchitectureName &row = checked_architecture(source);
    const ModelConfig &c = source.config();
    const std::string front = std::string(row.name) + ".";
    const auto number = [&](const char *key, int64_t value) {
        out.add(front + key, static_cast<uint32_t>(value));
    };
    std::error_code ignored;
    const auto folder = std::filesystem::canonical(source.path(), ignored);
    out.add("general.architecture", row.name);
    out.add("general.type", "model");
    if (!folder.filename().empty()) out.add("general.name", folder.filename().string());
    out.add("general.file_type", file_type(type));
    out.add("general.quantization_version", uint32_t{2});
    number("vocab_size", c.vocab_size);
    number("context_length", c.max_positions);
    number("embedding_length", c.hidden_size);
    number("block_count", c.layers);
    number("feed_forward_length", c.intermediate_size);
    number("attention.head_count", c.heads);
    number("attention.head_count_kv", c.kv_heads);
    number("attention.key_length", c.head_dim);
    number("attention.value_length", c.head_dim);
    out.add(front + "attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
    add_rope(c, front, out);
    if (c.sliding_window) number("attention.sliding_window", *c.sliding_window);
    if (c.attention_softcap != 0)
        out.add(front + "attn_logit_softcapping", static_cast<float>(c.attention_softcap));
    if (c.logit_softcap != 0)
        out.add(front + "final_logit_softcapping", static_cast<float>(c.logit_softcap));
}

void copy_metadata(const GgufFile &from, keel_dtype type, GgufWriter &out) {
    for (const GgufEntry &entry : from.entries()) {
        const bool ours = entry.key == "general.file_type" ||
                          entry.key == "general.quantization_version" ||
                          entry.key == "general.alignment";
        // The keys about splitting and quantization describe the old file, so they are not copied.
        if (ours || entry.key.starts_with("split.") || entry.key.starts_with("quantize.")) continue;
        out.copy(from, entry);
    }
    out.add("general.file_type", file_type(type));
    out.add("general.quantization_version", uint32_t{2});
}

} // namespace keel::gguf
