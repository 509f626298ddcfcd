// Gemma 1, and the properties that all Gemmas share: embeddings are scaled by sqrt(hidden), files
// store w, and the norm factor is 1 + w, the gate uses GELU, and the output projection is the
// embedding matrix.

#include "model/arch/arch.hpp"

#include <cmath>

namespace keel::arch {
namespace {

void configure_gemma(const model::ConfigReader &in, ModelConfig &config) {
    read_gemma(in, config);
    read_attention_bias(in, config);
}

} // namespace

void read_gemma(const model::ConfigReader &in, ModelConfig &config) {
    config.norm_offset = 1;
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
    if (in.boolean("use_bidirectional_attention", false)) {
        in.fail("use_bidirectional_attention",
                "expected false; a model whose tokens attend to later tokens computes embeddings "
                "and cannot generate text");
    }
}

void read_gemma_attention(const model::ConfigReader &in, ModelConfig &config, double attention_cap,
                          double logit_cap) {
    const auto cap = [&](const char *key, double fallback) {
        return in.is_null(key) || (fallback == 0 && !in.has(key))
                   ? 0
                   : in.number(key, 1e-3, 1e6, fallback);
    };
    config.post_norms = true;
    config.query_scalar = in.number("query_pre_attn_scalar", 1e-3, 1e9, 256.0);
    config.attention_softcap = cap("attn_logit_softcapping", attention_cap);
    config.logit_softcap = cap("final_logit_softcapping", logit_cap);
}

// The first configs of Gemma have "hidden_act": "gelu" but mean the tanh form. So only
// "hidden_activation" is read.
constinit const Architecture gemma = {"GemmaForCausalLM",
                                      "gemma",
                                      {.kv_heads = 16,
                                       .head_dim = 256,
                                       .max_positions = 8192,
                                       .tied_embeddings = true,
                                       .activation_key = "hidden_activation",
                                       .activation = "gelu_pytorch_tanh"},
                                      {},
                                      configure_gemma};

} // namespace keel::arch
