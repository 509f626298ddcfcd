#include "model/facts.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel {

std::string window_text(const ModelConfig &c) {
    const auto n = std::count(c.sliding_layers.begin(), c.sliding_layers.end(), true);
    if (!c.sliding_window || n == 0) return {};
    return n == c.layers ? fmt::format("window {}", *c.sliding_window)
                         : fmt::format("window {} in {} of {} layers", *c.sliding_window, n, c.layers);
}

std::vector<std::string> architecture_facts(const ModelConfig &c) {
    std::vector<std::string> facts;
    if (c.qkv_bias)
        facts.emplace_back(c.attention_out_bias ? "biases on q, k, v and behind attention"
                                                : "biases on q, k, v");
    if (c.mlp_bias) facts.emplace_back("biases in the feed-forward");
    if (c.qk_norm) facts.emplace_back("norms on queries and keys");
    if (c.post_norms) facts.emplace_back("norms behind attention and feed-forward");
    if (c.activation != Activation::silu)
        facts.emplace_back(c.activation == Activation::gelu ? "GELU" : "GELU (tanh)");
    if (c.embedding_scale != 1) facts.push_back(fmt::format("embeddings times {:.6g}", c.embedding_scale));
    if (c.query_scalar && *c.query_scalar != static_cast<double>(c.head_dim))
        facts.push_back(fmt::format("attention scaled by 1/sqrt({:.6g})", *c.query_scalar));
    if (c.attention_softcap > 0)
        facts.push_back(fmt::format("attention capped at {:.6g}", c.attention_softcap));
    if (c.logit_softcap > 0) facts.push_back(fmt::format("logits capped at {:.6g}", c.logit_softcap));
    return facts;
}

} // namespace keel
