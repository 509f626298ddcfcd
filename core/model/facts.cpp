#include "model/facts.hpp"

#include "model/rope_frequencies.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel {

std::string window_text(const ModelConfig &c) {
    const auto n = std::count(c.sliding_layers.begin(), c.sliding_layers.end(), true);
    if (!c.sliding_window || n == 0) return {};
    return n == c.layers
               ? fmt::format("window {}", *c.sliding_window)
               : fmt::format("window {} in {} of {} layers", *c.sliding_window, n, c.layers);
}

std::vector<std::string> architecture_facts(const ModelConfig &c) {
    std::vector<std::string> facts;
    if (c.qkv_bias)
        facts.emplace_back(c.attention_out_bias ? "biases on q, k, v and the attention output"
                                                : "biases on q, k, v");
    if (c.mlp_bias) facts.emplace_back("biases in the feed-forward");
    if (c.qk_norm)
        facts.emplace_back(c.qk_norm_joint ? "norms on queries and keys, over all heads together"
                                           : "norms on queries and keys");
    if (const Experts &e = c.experts; e.count > 0) {
        facts.push_back(fmt::format("a mixture of {} experts, {} for each token{}", e.count, e.used,
                                    e.normalize ? ", with normalized weights" : ""));
        if (e.shared_size > 0)
            facts.push_back(fmt::format("a shared expert of size {}", e.shared_size));
    }
    if (c.post_norms)
        facts.emplace_back(c.pre_norms ? "norms after attention and feed-forward"
                                       : "norms after attention and feed-forward, none before");
    if (c.layer_norm) facts.emplace_back("layer norms");
    if (c.parallel_blocks) facts.emplace_back("attention and feed-forward in parallel");
    if (c.activation != Activation::silu)
        facts.emplace_back(c.activation == Activation::gelu ? "GELU" : "GELU (tanh)");
    if (c.embedding_scale != 1)
        facts.push_back(fmt::format("embeddings times {:.6g}", c.embedding_scale));
    if (c.query_scalar && *c.query_scalar != static_cast<double>(c.head_dim))
        facts.push_back(fmt::format("attention scaled by 1/sqrt({:.6g})", *c.query_scalar));
    if (c.attention_multiplier)
        facts.push_back(fmt::format("attention scaled by {:.6g}", *c.attention_multiplier));
    if (c.query_scale_beta != 0)
        facts.push_back(fmt::format("queries scaled by the position, from {} tokens on",
                                    c.query_scale_context));
    if (c.residual_scale != 1)
        facts.push_back(fmt::format("attention and feed-forward times {:.6g}", c.residual_scale));
    if (c.logit_scale != 1) facts.push_back(fmt::format("logits times {:.6g}", c.logit_scale));
    if (c.attention_softcap > 0)
        facts.push_back(fmt::format("attention capped at {:.6g}", c.attention_softcap));
    if (c.logit_softcap > 0)
        facts.push_back(fmt::format("logits capped at {:.6g}", c.logit_softcap));
    return facts;
}

std::string feed_forward_text(const ModelConfig &c) {
    const Experts &e = c.experts;
    return e.count == 0 ? fmt::format("feed-forward {}", c.intermediate_size)
                        : fmt::format("{} of {} experts of size {}", e.used, e.count, e.size);
}

std::string count_text(uint64_t n) {
    const auto value = static_cast<double>(n);
    if (n >= 1000000000) return fmt::format("{:.2f} billion", value / 1e9);
    if (n >= 1000000) return fmt::format("{:.2f} million", value / 1e6);
    return fmt::format("{}", n);
}

std::string rope_text(const ModelConfig &m) {
    std::string text = fmt::format("theta {}", m.rope_theta);
    if (m.local_rope_theta)
        text += fmt::format(" ({} in layers with a window)", *m.local_rope_theta);
    if (m.rot != m.head_dim) text += fmt::format(", {} of {} elements", m.rot, m.head_dim);
    if (m.rope_interleaved) text += ", neighbouring pairs";
    const auto without = std::count(m.no_rope_layers.begin(), m.no_rope_layers.end(), true);
    if (without > 0) text += fmt::format(", none in {} of {} layers", without, m.layers);
    const RopeScaling &s = m.rope_scaling;
    switch (s.kind) {
    case RopeScaling::Kind::none: return text + ", no scaling";
    case RopeScaling::Kind::linear: return text + fmt::format(", linear scaling by {}", s.factor);
    case RopeScaling::Kind::factors: return text + ", a scaling factor per frequency";
    case RopeScaling::Kind::llama3:
        return text +
               fmt::format(", Llama 3 scaling by {} from {} tokens", s.factor, s.original_context);
    case RopeScaling::Kind::yarn:
        return text + fmt::format(", YaRN by {} from {} tokens, times {:.6g}", s.factor,
                                  s.original_context, s.attention_factor);
    case RopeScaling::Kind::longrope: break;
    }
    text += has_long_factors(s, m.max_positions)
                ? fmt::format(", LongRoPE with the long factors (with the short ones if "
                              "model.context is at most {} tokens)",
                              s.original_context)
                : fmt::format(", LongRoPE with the short factors (with the long ones if "
                              "model.context is above {} tokens)",
                              s.original_context);
    return text + fmt::format(", times {:.6g}", s.attention_factor);
}

std::map<std::string, TensorSum> sums_by_dtype(const ModelSource &source) {
    std::map<std::string, TensorSum> sums;
    for (const TensorInfo &tensor : source.tensors()) {
        TensorSum &sum = sums[tensor.dtype_name];
        ++sum.tensors;
        sum.elements += static_cast<uint64_t>(tensor.elements());
        sum.bytes += tensor.bytes;
    }
    return sums;
}

std::vector<Conversion> sometimes_converted(const ModelSource &source) {
    std::vector<Conversion> some = source.conversions(KEEL_DTYPE_NONE, 0);
    const std::vector<Conversion> all = source.conversions(KEEL_DTYPE_NONE, all_weight_dtypes);
    std::erase_if(some, [&](const Conversion &c) {
        return std::any_of(all.begin(), all.end(),
                           [&](const Conversion &other) { return other.from == c.from; });
    });
    return some;
}

} // namespace keel
