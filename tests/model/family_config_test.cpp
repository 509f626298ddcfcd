// Tests of the configs of the dense families that are newer than those of
// architecture_config_test.cpp, and of their RoPE. The configs are those that the authors publish,
// shortened to the keys that matter.

#include "model/facts.hpp"
#include "model/model_tensors.hpp"
#include "model/rope_frequencies.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>

using namespace keel;
using Catch::Matchers::Contains;
using keel::test::error_text;

namespace {

ModelConfig read(const std::string &text) { return parse_model_config(text, "x/config.json"); }

// A small config of an architecture. `more` follows its keys.
std::string family(const std::string &architecture, const std::string &more = {}) {
    return R"({"architectures": [")" + architecture +
           R"("], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, )"
           R"("vocab_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2)" +
           (more.empty() ? "" : ", " + more) + "}";
}

std::string why_refused(const std::string &architecture, const std::string &more) {
    return error_text([&] { read(family(architecture, more)); });
}

std::string eight(double first, double step) {
    std::string text = "[";
    for (int i = 0; i < 8; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", first + i * step);
    return text + "]";
}

} // namespace

TEST_CASE("SmolLM 3 has no RoPE in every fourth layer") {
    const ModelConfig c = read(
        R"({"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
        "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 65536,
        "mlp_bias": false, "model_type": "smollm3", "no_rope_layer_interval": 4,
        "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0,
        "sliding_window": null, "use_sliding_window": false, "vocab_size": 128256})");
    CHECK(c.parameter_count() == 3075098624);
    CHECK(c.has_rope(0));
    CHECK_FALSE(c.has_rope(3));
    CHECK_FALSE(c.has_rope(35));
    CHECK(c.rope_theta == 5e6);
    CHECK(own_rope(c).frequencies == std::vector<double>(64, 0.0));
    const ModelConfig all = read(family("SmolLM3ForCausalLM", R"("no_rope_layers": [1, 1, 1, 1])"));
    CHECK(all.no_rope_layers.empty());
    CHECK_FALSE(all.has_two_ropes());
    CHECK_THAT(why_refused("SmolLM3ForCausalLM", R"("no_rope_layers": [1, 0])"),
               Contains("no_rope_layers: expected a number for each layer, found an array of 2"));
    const ModelConfig windows =
        read(family("SmolLM3ForCausalLM", R"("use_sliding_window": true, "sliding_window": 9)"));
    CHECK(windows.window(3) == 9);
    CHECK(windows.window(0) == 0);
}

TEST_CASE("Phi 4 mini rotates a part of each head, with factors that depend on the context") {
    std::string factors = "[";
    for (int i = 0; i < 48; ++i) factors += i == 0 ? "1" : ", 1.5";
    factors += "]";
    const std::string text =
        R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "full_attn_mod": 1,
        "hidden_size": 3072, "intermediate_size": 8192, "lm_head_bias": false,
        "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 24,
        "num_hidden_layers": 32, "num_key_value_heads": 8,
        "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
        "rms_norm_eps": 1e-05, "rope_scaling": {"type": "longrope", "short_factor": )" +
        factors + R"(, "long_factor": )" + factors +
        R"(}, "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
        "vocab_size": 200064})";
    const ModelConfig c = read(text);
    CHECK(c.parameter_count() == 3836021760);
    CHECK(c.head_dim == 128);
    CHECK(c.rot == 96);
    CHECK(c.rope_scaling.attention_factor == Approx(std::sqrt(1 + std::log(32) / std::log(4096))));
    const LayerParts layer = layer_parts(c, 0);
    REQUIRE(layer.qkv.parts.size() == 1);
    CHECK(layer.qkv.parts[0].tensor == "model.layers.0.self_attn.qkv_proj.weight");
    CHECK(layer.qkv.parts[0].rows == 5120);
    CHECK(layer.gate_up.parts[0].rows == 16384);
}

TEST_CASE("LongRoPE has two lists of factors, and the context chooses one") {
    const std::string lists =
        R"("short_factor": )" + eight(1, 0.5) + R"(, "long_factor": )" + eight(2, 1);
    const auto with = [&](const std::string &keys) {
        return family("Phi3ForCausalLM", R"("max_position_embeddings": 1024, )" + keys);
    };
    const ModelConfig c = read(with(R"("original_max_position_embeddings": 64,
                                       "rope_scaling": {"type": "su", )" +
                                    lists + "}"));
    const std::vector<double> plain = rope_frequencies(1e4, 16, {});
    const RopeAngles short_one = model_rope(c, 64), long_one = model_rope(c, 65);
    for (size_t i = 0; i < 8; ++i) {
        CHECK(short_one.frequencies[i] == plain[i] / (1 + 0.5 * static_cast<double>(i)));
        CHECK(long_one.frequencies[i] == plain[i] / (2 + static_cast<double>(i)));
    }
    CHECK(short_one.factor == Approx(std::sqrt(1 + std::log(16) / std::log(64))));
    CHECK(trained_positions(c, 64) == 64);
    CHECK(trained_positions(c, 65) == 1024);
    CHECK_THAT(rope_text(c), Contains("LongRoPE with the long factors (with the short ones if "
                                      "model.context is at most 64 tokens)"));
    CHECK_THAT(
        why_refused("Phi3ForCausalLM", R"("rope_scaling": {"type": "longrope", )" + lists + "}"),
        Contains("rope_scaling.original_max_position_embeddings: expected an integer"));
    CHECK_THAT(
        why_refused("Phi3ForCausalLM",
                    R"("original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope",
                       "short_factor": [1, 2], "long_factor": )" +
                        eight(2, 1) + "}"),
        Contains("rope_scaling.short_factor: expected 8 numbers, half of the 16 rotated elements "
                 "of a head; found 2"));
    CHECK_THAT(why_refused("Phi3ForCausalLM", R"("mlp_bias": true)"),
               Contains("mlp_bias: expected false, found true"));
    CHECK_THAT(why_refused("Phi3ForCausalLM", R"("partial_rotary_factor": 0.2)"),
               Contains("partial_rotary_factor: expected a share that gives an even number of "
                        "elements of a head, found 3 of 16 elements"));
}

TEST_CASE("YaRN's keys are read with their defaults, and extend the context") {
    const std::string yarn = R"("max_position_embeddings": 32768, "rope_scaling": {"type": "yarn",
        "factor": 4.0, "original_max_position_embeddings": 32768)";
    const ModelConfig c = read(family("Qwen2ForCausalLM", yarn + "}"));
    CHECK(c.rope_scaling.kind == RopeScaling::Kind::yarn);
    CHECK(c.max_positions == 131072);
    CHECK(c.rope_scaling.beta_fast == 32);
    CHECK(c.rope_scaling.beta_slow == 1);
    CHECK(c.rope_scaling.attention_factor == Approx(1 + 0.1 * std::log(4)));
    const ModelConfig given = read(family("Qwen2ForCausalLM", yarn + R"(, "mscale": 1.0,
        "mscale_all_dim": 1.0, "beta_fast": 8, "truncate": false})"));
    CHECK(given.rope_scaling.attention_factor == 1);
    CHECK_FALSE(given.rope_scaling.truncate);
    CHECK_THAT(why_refused("Qwen2ForCausalLM", yarn + R"(, "beta_fast": 0.5})"),
               Contains("rope_scaling.beta_fast: expected beta_slow (1) or more, found 0.5"));
    CHECK_THAT(why_refused("Qwen2ForCausalLM", yarn + R"(, "extrapolation_factor": 2})"),
               Contains("rope_scaling.extrapolation_factor: unknown key"));
    CHECK_THAT(why_refused("LlamaForCausalLM", R"("partial_rotary_factor": 0.5)"),
               Contains("RoPE on only a part of each head is not supported for LlamaForCausalLM"));
}

TEST_CASE("OLMo 2 has norms only after its blocks, and OLMo 3 scales RoPE only outside windows") {
    const ModelConfig c = read(
        R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "rms_norm_eps": 1e-06, "rope_theta": 500000, "tie_word_embeddings": false,
        "vocab_size": 100352})");
    CHECK(c.parameter_count() == 7298617344);
    CHECK_FALSE(c.pre_norms);
    const LayerParts layer = layer_parts(c, 1);
    CHECK(layer.attention_norm.empty());
    CHECK(layer.ffn_norm.empty());
    CHECK(layer.post_attention_norm.parts[0].tensor ==
          "model.layers.1.post_attention_layernorm.weight");
    CHECK(layer.q_norm.parts[0].rows == 4096);
    const std::string yarn = R"("rope_scaling": {"rope_type": "yarn", "factor": 8.0,
        "attention_factor": 1.2, "original_max_position_embeddings": 8192}, "rope_theta": 500000)";
    const ModelConfig three = read(family("Olmo3ForCausalLM", yarn));
    CHECK(three.window(0) == 4096);
    CHECK(three.window(3) == 0);
    CHECK(three.has_own_rope(0));
    CHECK_FALSE(three.has_own_rope(3));
    CHECK(own_rope(three).frequencies == rope_frequencies(500000, 16, {}));
    CHECK(own_rope(three).factor == 1);
    CHECK(model_rope(three, 100).factor == 1.2);
    CHECK_FALSE(read(family("Olmo3ForCausalLM")).has_two_ropes());
}

TEST_CASE("Granite has four factors") {
    const ModelConfig c = read(
        R"({"architectures": ["GraniteForCausalLM"], "attention_bias": false,
        "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0, "hidden_size": 4096,
        "intermediate_size": 12800, "logits_scaling": 16.0, "max_position_embeddings": 131072,
        "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 8, "residual_multiplier": 0.22, "rms_norm_eps": 1e-05,
        "rope_theta": 10000000.0, "tie_word_embeddings": true, "vocab_size": 49159})");
    CHECK(c.attention_scale() == 0.0078125);
    CHECK(c.embedding_scale == 12);
    CHECK(c.residual_scale == 0.22);
    CHECK(c.logit_scale == 1 / 16.0);
}

TEST_CASE("GLM 4 rotates neighbouring elements in half of each head") {
    const ModelConfig c = read(
        R"({"architectures": ["Glm4ForCausalLM"], "attention_bias": true, "head_dim": 128,
        "hidden_size": 4096, "intermediate_size": 13696, "max_position_embeddings": 32768,
        "model_type": "glm4", "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 151552})");
    CHECK(c.parameter_count() == 9400279040);
    CHECK(c.rot == 64);
    CHECK(c.rope_interleaved);
    CHECK(c.qkv_bias);
    CHECK_FALSE(c.attention_out_bias);
    CHECK(c.post_norms);
    CHECK_FALSE(read(family("GlmForCausalLM")).post_norms);
}

TEST_CASE("Command R7B has parallel blocks, and RoPE only in the layers with a window") {
    const ModelConfig c = read(
        R"({"architectures": ["Cohere2ForCausalLM"], "attention_bias": false, "head_dim": 128,
        "hidden_size": 4096, "intermediate_size": 14336, "layer_norm_eps": 1e-05,
        "logit_scale": 0.25, "max_position_embeddings": 132096, "model_type": "cohere2",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "order_of_interleaved_layers": "local_attn_first",
        "position_embedding_type": "rope_gptj", "rope_scaling": null, "rope_theta": 50000,
        "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4,
        "use_embedding_sharing": true, "use_gated_activation": true,
        "use_parallel_block": true, "use_parallel_embedding": true, "vocab_size": 256000})");
    CHECK(c.parameter_count() == 8028033024);
    CHECK(c.rms_norm_eps == 1e-5);
    CHECK(c.logit_scale == 0.25);
    CHECK(c.layer_norm);
    CHECK(c.tied_embeddings);
    CHECK(c.window(2) == 4096);
    CHECK(c.has_rope(2));
    CHECK(c.window(3) == 0);
    CHECK_FALSE(c.has_rope(3));
    CHECK(layer_parts(c, 0).ffn_norm.empty());
    const std::string theta = R"("rope_theta": 50000, )";
    CHECK_THAT(why_refused("Cohere2ForCausalLM", theta + R"("use_parallel_block": false)"),
               Contains("use_parallel_block: expected true, found false"));
    CHECK_THAT(
        why_refused("Cohere2ForCausalLM", theta + R"("position_embedding_type": "rope_neox")"),
        Contains("position_embedding_type: expected rope_gptj"));
    CHECK_THAT(why_refused("CohereForCausalLM", R"("use_qk_norm": true)"),
               Contains("use_qk_norm: expected false, found true"));
    CHECK_THAT(why_refused("Cohere2ForCausalLM", theta + R"("sliding_window": null)"),
               Contains("sliding_window: expected a number of tokens, found null"));
    CHECK_THAT(why_refused("CohereForCausalLM", R"("rope_scaling": null)"),
               Contains("rope_theta: expected a number, found nothing"));
    CHECK(
        read(family("CohereForCausalLM", R"("rope_parameters": {"rope_theta": 8e6})")).rope_theta ==
        8e6);
}

TEST_CASE("Ministral has a window in the layers that its config lists") {
    const ModelConfig c = read(family("MinistralForCausalLM", R"("sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                        "sliding_attention"])"));
    CHECK(c.window(0) == 0);
    CHECK(c.window(1) == 8);
    CHECK(read(family("MinistralForCausalLM")).window(0) == 4096);
    CHECK_FALSE(read(family("MinistralForCausalLM", R"("sliding_window": null)")).sliding_window);
}
