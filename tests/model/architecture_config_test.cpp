// Tests of the meaning of each architecture's config.json. The configs are those that the authors
// publish, shortened to the keys that matter.

#include "model/config.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <cmath>

using namespace keel;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using keel::test::error_text;

namespace {

ModelConfig parse(const std::string &text) { return parse_model_config(text, "x/config.json"); }

std::string refusal(const std::string &text) {
    return error_text([&] { parse(text); });
}

// Returns a small config of an architecture. `more` follows its keys.
std::string small(const std::string &architecture, const std::string &more = {}) {
    return R"({"architectures": [")" + architecture +
           R"("], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, )"
           R"("vocab_size": 256,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)" +
           (more.empty() ? "" : ", " + more) + "}";
}

std::vector<bool> layers(std::initializer_list<int> values) {
    return std::vector<bool>(values.begin(), values.end());
}

} // namespace

TEST_CASE("Mistral's window is for all layers, null means none, and the default is 4096") {
    const ModelConfig first = parse(
        R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
        "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": false, "vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2})");
    CHECK(first.architecture->name == "MistralForCausalLM");
    CHECK(first.head_dim == 128);
    CHECK(first.window(0) == 4096);
    CHECK(first.window(31) == 4096);
    CHECK(first.window(32) == 0);
    CHECK(first.parameter_count() == 7241732096);
    CHECK_FALSE(first.qkv_bias);
    const ModelConfig second = parse(small("MistralForCausalLM", R"("sliding_window": null)"));
    CHECK_FALSE(second.sliding_window.has_value());
    CHECK(second.window(0) == 0);
    CHECK(parse(small("MistralForCausalLM")).window(3) == 4096);
    CHECK_THAT(refusal(small("MistralForCausalLM", R"("sliding_window": 0)")),
               Contains("sliding_window: expected an integer from 1 to") && Contains("found 0"));
}

TEST_CASE("Qwen 2 has biases on q, k and v, and a window only if the config enables it") {
    const ModelConfig c = parse(
        R"({"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false,
        "vocab_size": 151936})");
    CHECK(c.qkv_bias);
    CHECK_FALSE(c.attention_out_bias);
    CHECK_FALSE(c.qk_norm);
    CHECK(c.tied_embeddings);
    CHECK(c.head_dim == 64);
    CHECK_FALSE(c.sliding_window.has_value());
    CHECK(c.parameter_count() == 494032768);
    const ModelConfig windowed = parse(
        small("Qwen2ForCausalLM",
              R"("use_sliding_window": true, "sliding_window": 100, "max_window_layers": 4)"));
    CHECK(windowed.sliding_layers == layers({0, 0, 0, 0, 1, 1}));
    CHECK(windowed.window(4) == 100);
    CHECK(windowed.window(3) == 0);
    // All layers are below max_window_layers, so there is no attention window.
    CHECK_FALSE(
        parse(small("Qwen2ForCausalLM", R"("use_sliding_window": true, "max_window_layers": 6)"))
            .sliding_window.has_value());
}

TEST_CASE("Qwen 3 normalizes heads, which have their own size") {
    const ModelConfig c = parse(
        R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
        "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})");
    CHECK(c.qk_norm);
    CHECK_FALSE(c.qkv_bias);
    CHECK(c.q_size() == 2048);
    CHECK(c.parameter_count() == 596049920);
    const ModelConfig biased = parse(small("Qwen3ForCausalLM", R"("attention_bias": true)"));
    CHECK(biased.qkv_bias);
    CHECK(biased.attention_out_bias);
    CHECK_THAT(refusal(small("Qwen3ForCausalLM",
                             R"("rope_scaling": {"rope_type": "dynamic", "factor": 4.0})")),
               Contains(": rope_scaling.rope_type: 'dynamic' scaling is not supported"));
}

TEST_CASE("layer_types says for each layer whether it has a window") {
    const std::string types =
        R"("sliding_window": 8, "use_sliding_window": true, "layer_types": ["full_attention",
        "sliding_attention",
           "full_attention", "full_attention", "sliding_attention", "full_attention"])";
    CHECK(parse(small("Qwen3ForCausalLM", types)).sliding_layers == layers({0, 1, 0, 0, 1, 0}));
    CHECK(parse(small("Gemma2ForCausalLM", types)).sliding_layers == layers({0, 1, 0, 0, 1, 0}));
    CHECK_THAT(refusal(small("Gemma3ForCausalLM", R"("layer_types": ["full_attention"])")),
               Contains("layer_types: expected a type for each of 6 layers, found an array of 1"));
    CHECK_THAT(
        refusal(small("Gemma3ForCausalLM",
                      R"("layer_types": ["chunked_attention", "full_attention", "full_attention",
                                "full_attention", "full_attention", "full_attention"])")),
        Contains("layer_types: 'chunked_attention' is not supported"));
}

TEST_CASE("Gemma 2's config is read with caps, scales, and a window in every other layer") {
    const ModelConfig c = parse(
        R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
        "attn_logit_softcapping": 50.0,
        "bos_token_id": 2, "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 2304,
        "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
        "num_attention_heads": 8,
        "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000})");
    CHECK(c.activation == Activation::gelu_tanh);
    CHECK(c.tied_embeddings);
    CHECK(c.post_norms);
    CHECK(c.norm_offset == 1);
    CHECK(c.embedding_scale == 48);
    CHECK(c.attention_scale() == 1.0 / 16);
    CHECK(c.attention_softcap == 50);
    CHECK(c.logit_softcap == 30);
    CHECK(c.window(0) == 4096);
    CHECK(c.window(1) == 0);
    CHECK_FALSE(c.has_own_rope(0));
    CHECK(c.parameter_count() == 2614341888);
    const ModelConfig uncapped = parse(small(
        "Gemma2ForCausalLM", R"("attn_logit_softcapping": null, "query_pre_attn_scalar": 144)"));
    CHECK(uncapped.attention_softcap == 0);
    CHECK(uncapped.logit_softcap == 30);
    CHECK(uncapped.attention_scale() == 1.0 / 12);
    CHECK_THAT(refusal(small("Gemma2ForCausalLM", R"("final_logit_softcapping": -1)")),
               Contains("final_logit_softcapping: expected a number from 0.001"));
    CHECK_THAT(refusal(small("Gemma2ForCausalLM", R"("hidden_activation": "relu")")),
               Contains("hidden_activation: 'relu' is not supported"));
}

TEST_CASE("Gemma 3's text config is read with head norms, two thetas, and one of six layers "
          "without a window") {
    const ModelConfig c = parse(
        R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
        "attn_logit_softcapping": null,
        "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768,
        "model_type": "gemma3_text",
        "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
        "rope_theta": 1000000,
        "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144})");
    CHECK(c.qk_norm);
    CHECK(c.post_norms);
    CHECK(c.attention_softcap == 0);
    CHECK(c.logit_softcap == 0);
    CHECK(c.rope_theta == 1e6);
    CHECK(c.local_rope_theta == 1e4);
    CHECK(c.window(4) == 512);
    CHECK(c.window(5) == 0);
    CHECK(c.has_own_rope(4));
    CHECK_FALSE(c.has_own_rope(5));
    CHECK(c.parameter_count() == 999885952);
    const ModelConfig newer = parse(
        small("Gemma3ForCausalLM",
              R"("sliding_window": 8, "rope_parameters": {"full_attention": {"rope_type": "linear",
        "factor": 8.0,
           "rope_theta": 2000000.0}, "sliding_attention": {"rope_type": "default",
           "rope_theta": 5000.0}})"));
    CHECK(newer.rope_theta == 2e6);
    CHECK(newer.rope_scaling.factor == 8);
    CHECK(newer.local_rope_theta == 5e3);
    CHECK_THAT(refusal(small("Gemma3ForCausalLM",
                             R"("rope_parameters": {"full_attention": {},
            "sliding_attention": {"rope_type": "linear",
                                "factor": 2.0}})")),
               Contains("rope_parameters.sliding_attention.rope_type: RoPE scaling in the layers "
                        "with an attention window"));
    CHECK_THAT(refusal(small("Gemma3ForCausalLM", R"("use_bidirectional_attention": true)")),
               Contains("use_bidirectional_attention"));
    CHECK_THAT(refusal(small("Gemma3ForCausalLM", R"("sliding_window_pattern": 0)")),
               Contains("sliding_window_pattern: expected an integer from 1"));
}

TEST_CASE("Gemma 1 has its GELU in another key than hidden_act") {
    const ModelConfig c = parse(small("GemmaForCausalLM", R"("hidden_act": "gelu")"));
    CHECK(c.activation == Activation::gelu_tanh);
    CHECK_FALSE(c.post_norms);
    CHECK(c.norm_offset == 1);
    CHECK(c.embedding_scale == 8);
    CHECK(c.attention_scale() == 0.25);
}

// The published config.json of Qwen/Qwen3-30B-A3B and of mistralai/Mixtral-8x7B-v0.1.
TEST_CASE("mixtures of experts have the parameter counts that their authors publish") {
    const ModelConfig qwen = parse(R"({
        "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1,
        "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960,
        "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
        "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
        "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
    CHECK(qwen.experts == Experts{128, 8, 768, true, 0});
    CHECK(qwen.parameter_count() == 30532122624);
    CHECK(qwen.active_parameter_count() == 3353032704);
    CHECK(qwen.active_intermediate() == 6144);
    CHECK_FALSE(qwen.sliding_window);
    const ModelConfig mixtral = parse(R"({
        "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
        "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
        "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
        "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "vocab_size": 32000})");
    CHECK(mixtral.experts == Experts{8, 2, 14336, true, 0});
    CHECK(mixtral.parameter_count() == 46702792704);
    CHECK(mixtral.active_parameter_count() == 12879925248);
}

TEST_CASE("unsupported kinds of models are refused with name and reason") {
    CHECK_THAT(refusal(small("DeepseekV3ForCausalLM")),
               Contains(": architectures: 'DeepseekV3ForCausalLM' is not supported, because its "
                        "feed-forward network is a mixture of experts of a form that Keel does not "
                        "compute; supported: LlamaForCausalLM, MistralForCausalLM, "));
    CHECK_THAT(refusal(small("Qwen3MoeForCausalLM")),
               Contains("num_experts: expected an integer from 1 to 4096, found nothing"));
    CHECK_THAT(refusal(small("Gemma3ForConditionalGeneration")),
               Contains("take the text-only version"));
    CHECK_THAT(refusal(small("LlamaForCausalLM", R"("num_local_experts": 8)")),
               Contains("num_local_experts: a mixture of experts is not supported for "
                        "LlamaForCausalLM"));
    CHECK_NOTHROW(parse(small("LlamaForCausalLM", R"("num_experts": 0)")));
}
