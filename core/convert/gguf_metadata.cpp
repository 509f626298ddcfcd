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

// Readers of GGUF know the layers with a window, and those without RoPE, by the architecture.
void check_layers(const ModelSource &source, const ArchitectureName &row) {
    const ModelConfig &c = source.config();
    if ((row.name.starts_with("qwen") || row.name == "smollm3") && c.sliding_window)
        cannot_say(source, "the sliding window of this architecture");
    const bool always = row.name == "gemma2" || row.name == "gemma3" || row.name == "cohere2";
    for (size_t i = 0; i < static_cast<size_t>(c.layers); ++i) {
        const bool is_fourth = (i + 1) % 4 == 0;
        const bool slides = row.name == "gemma2"                           ? i % 2 == 0
                            : row.name == "gemma3"                         ? (i + 1) % 6 != 0
                            : row.name == "olmo2" || row.name == "cohere2" ? !is_fourth
                                                                           : true;
        if ((always || c.sliding_window) && (c.window(i) > 0) != slides)
            cannot_say(source, "this choice of layers with a sliding window");
        if (row.name == "smollm3" && c.has_rope(i) == is_fourth)
            cannot_say(source, "this choice of layers without RoPE");
    }
}

double usual_attention(const RopeScaling &s) { return 1 + 0.1 * std::log(s.factor); }

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// llama.cpp ignores some keys of YaRN in most architectures.
void check_yarn(const ModelSource &source, const ArchitectureName &row) {
    const RopeScaling &s = source.config().rope_scaling;
    if (s.kind != RopeScaling::Kind::yarn) return;
    if (!s.truncate) cannot_say(source, "YaRN with truncate: false");
    if (row.name != "mistral3" && (s.beta_fast != 32 || s.beta_slow != 1))
        cannot_say(source, "YaRN with another beta_fast than 32 or another beta_slow than 1");
    // Readers disagree about attn_factor of olmo2.
    if (row.name == "olmo2" && !is_near(s.attention_factor, usual_attention(s)))
        cannot_say(source, "this attention_factor of YaRN in OLMo 3");
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
    check_layers(source, row);
    check_yarn(source, row);
    if (row.name == "gemma3" && c.local_rope_theta.value_or(1e4) != 1e4)
        cannot_say(source, "this model's value of rope_local_base_freq");
    const Activation activation = row.factor_norms ? Activation::gelu_tanh : Activation::silu;
    if (c.activation != activation) cannot_say(source, "this model's activation function");
    if (row.factor_norms && !c.tied_embeddings)
        cannot_say(source, "a separate output projection in a Gemma model");
}

// Readers of GGUF know by the architecture whether the weights of experts are normalized.
void check_experts(const ModelSource &source, const ArchitectureName &row) {
    const Experts &e = source.config().experts;
    const bool normalizes = row.name == "qwen3moe" || row.architecture == "MixtralForCausalLM";
    if (e.count > 0 && e.normalize != normalizes)
        cannot_say(source, "this value of norm_topk_prob");
}

void add_experts(const ModelConfig &c, const ArchitectureName &row, const std::string &front,
                 GgufWriter &out) {
    const auto number = [&](const char *key, int64_t value) {
        out.add(front + key, static_cast<uint32_t>(value));
    };
    if (c.experts.count == 0) return;
    number("expert_count", c.experts.count);
    number("expert_used_count", c.experts.used);
    if (row.name.starts_with("qwen")) number("expert_feed_forward_length", c.experts.size);
    if (c.experts.shared_size > 0)
        number("expert_shared_feed_forward_length", c.experts.shared_size);
}

void add_rope(const ModelConfig &c, const ArchitectureName &row, const std::string &front,
              GgufWriter &out) {
    const auto number = [&](const char *key, double value) {
        out.add(front + key, static_cast<float>(value));
    };
    out.add(front + "rope.dimension_count", static_cast<uint32_t>(c.rot));
    number("rope.freq_base", c.rope_theta);
    const RopeScaling &s = c.rope_scaling;
    if (s.kind == RopeScaling::Kind::linear || s.kind == RopeScaling::Kind::yarn) {
        out.add(front + "rope.scaling.type",
                s.kind == RopeScaling::Kind::linear ? "linear" : "yarn");
        number("rope.scaling.factor", s.factor);
    }
    if (s.kind == RopeScaling::Kind::yarn || s.kind == RopeScaling::Kind::longrope)
        out.add(front + "rope.scaling.original_context_length",
                static_cast<uint32_t>(s.original_context));
    if (s.kind == RopeScaling::Kind::longrope)
        number("rope.scaling.attn_factor", s.attention_factor);
    if (s.kind != RopeScaling::Kind::yarn) return;
    number("rope.scaling.yarn_beta_fast", s.beta_fast);
    number("rope.scaling.yarn_beta_slow", s.beta_slow);
    if (c.query_scale_beta != 0) number("attention.temperature_scale", c.query_scale_beta);
    // Readers compute the usual factor of cos and sin. Other factors need attn_factor. For
    // Ministral 3 the log multiplier 1 makes the factor 1.
    const double usual = usual_attention(s);
    if (s.attention_factor == 1 && row.name == "mistral3") {
        number("rope.scaling.yarn_log_multiplier", 1);
    } else if (!is_near(s.attention_factor, usual))
        number("rope.scaling.attn_factor", s.attention_factor / usual);
}

void add_scales(const ModelConfig &c, const ArchitectureName &row, const std::string &front,
                GgufWriter &out) {
    const auto number = [&](const char *key, double value) {
        out.add(front + key, static_cast<float>(value));
    };
    if (row.name == "granite") {
        number("attention.scale", c.attention_scale());
        number("embedding_scale", c.embedding_scale);
        number("residual_scale", c.residual_scale);
        number("logit_scale", 1 / c.logit_scale);
    }
    if (row.architecture.starts_with("Cohere")) number("logit_scale", c.logit_scale);
}

} // namespace

const ArchitectureName &checked_architecture(const ModelSource &source) {
    const ArchitectureName *row = find_by_architecture(source.config().architecture->name);
    if (row == nullptr) cannot_say(source, source.config().architecture->name);
    check_particular(source, *row);
    check_experts(source, *row);
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
    out.add(front + (c.layer_norm ? "attention.layer_norm_epsilon"
                                  : "attention.layer_norm_rms_epsilon"),
            static_cast<float>(c.rms_norm_eps));
    add_experts(c, row, front, out);
    add_rope(c, row, front, out);
    add_scales(c, row, front, out);
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
