#include "model/config.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using keel::test::error_text;
using keel::test::TempFolder;

namespace {

// Returns a small valid config. `more` is put before its keys.
std::string config_with(const std::string &more = {}) {
    return "{" + more + (more.empty() ? "" : ", ") +
           R"("architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
              "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 4})";
}

ModelConfig parse_config(const std::string &text) {
    return parse_model_config(text, "x/config.json");
}

std::string config_refusal(const std::string &text) {
    return error_text([&] { parse_config(text); });
}

// Returns config_with() in which one key has another value.
std::string replaced(const std::string &key, const std::string &value) {
    std::string text = config_with();
    const size_t at = text.find("\"" + key + "\": ") + key.size() + 4;
    const size_t end = text.find_first_of(",}", at);
    return text.replace(at, end - at, value);
}

} // namespace

TEST_CASE("the shipped tiny model's config is read completely") {
    const ModelConfig c = load_model_config(KEEL_SOURCE_DIR "/models/tiny");
    CHECK(c.architecture->name == "LlamaForCausalLM");
    CHECK(c.hidden_size == 256);
    CHECK(c.intermediate_size == 768);
    CHECK(c.layers == 6);
    CHECK(c.heads == 4);
    CHECK(c.kv_heads == 2);
    CHECK(c.head_dim == 64);
    CHECK(c.vocab_size == 4096);
    CHECK(c.max_positions == 2048);
    CHECK(c.rms_norm_eps == 1e-5);
    CHECK(c.rope_theta == 10000.0);
    CHECK(c.rope_scaling.kind == RopeScaling::Kind::none);
    CHECK(c.tied_embeddings);
    CHECK_FALSE(c.qkv_bias);
    CHECK_FALSE(c.attention_out_bias);
    CHECK(c.bos_id == 4094);
    CHECK(c.eos_ids == std::vector<int64_t>{4095});
    CHECK(c.stored_dtype == "bfloat16");
    CHECK(c.parameter_count() == 5770496);
}

TEST_CASE("missing keys of a config have the defaults of Hugging Face's Llama") {
    const ModelConfig c = parse_config(config_with());
    CHECK(c.kv_heads == 4);
    CHECK(c.head_dim == 16);
    CHECK(c.max_positions == 2048);
    CHECK(c.rms_norm_eps == 1e-6);
    CHECK(c.rope_theta == 10000.0);
    CHECK_FALSE(c.tied_embeddings);
    CHECK_FALSE(c.bos_id.has_value());
    CHECK(c.eos_ids.empty());
    CHECK_FALSE(c.sliding_window.has_value());
}

TEST_CASE("Llama 3.1's config is read with scaling and several end tokens") {
    const ModelConfig c = parse_config(
        R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128009, 128001, 128008, 128001],
        "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"}, "rope_theta": 500000.0,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
        "vocab_size": 128256})");
    CHECK(c.rope_scaling.kind == RopeScaling::Kind::llama3);
    CHECK(c.rope_scaling.factor == 8.0);
    CHECK(c.rope_scaling.low_freq_factor == 1.0);
    CHECK(c.rope_scaling.high_freq_factor == 4.0);
    CHECK(c.rope_scaling.original_context == 8192);
    CHECK(c.rope_theta == 500000.0);
    CHECK(c.eos_ids == std::vector<int64_t>{128001, 128008, 128009});
    CHECK(c.parameter_count() == 8030261248);
}

TEST_CASE("both spellings of RoPE's parameters mean the same") {
    const ModelConfig linear =
        parse_config(config_with(R"("rope_scaling": {"type": "linear", "factor": 4})"));
    CHECK(linear.rope_scaling.kind == RopeScaling::Kind::linear);
    CHECK(linear.rope_scaling.factor == 4.0);
    const std::string scaling =
        R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192)";
    const ModelConfig newer = parse_config(
        config_with(R"("rope_parameters": {"rope_theta": 500000.0, )" + scaling + "}"));
    CHECK(newer.rope_theta == 500000.0);
    CHECK(newer.rope_scaling.kind == RopeScaling::Kind::llama3);
    CHECK(newer.rope_scaling.factor == 32.0);
    const ModelConfig both = parse_config(
        config_with(R"("rope_theta": 500000.0, "rope_scaling": {)" + scaling +
                    R"(}, "rope_parameters": {"rope_theta": 500000.0, )" + scaling + "}"));
    CHECK(both.rope_scaling.factor == 32.0);
    const ModelConfig plain = parse_config(
        config_with(R"("rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})"));
    CHECK(plain.rope_scaling.kind == RopeScaling::Kind::none);
    CHECK(plain.rope_theta == 1e6);
}

TEST_CASE("unsupported RoPE variants are refused by name") {
    CHECK_THAT(config_refusal(config_with(R"("rope_scaling": {"type": "dynamic", "factor": 2.0})")),
               Contains(": rope_scaling.type: 'dynamic' scaling is not supported") &&
                   Contains("linear, llama3, yarn, longrope"));
    CHECK_THAT(config_refusal(config_with(R"("rope_scaling": {"type": "linear"})")),
               Contains("rope_scaling.factor: expected a number from 1 to") &&
                   Contains("found nothing"));
    CHECK_THAT(config_refusal(config_with(
                   R"("rope_scaling": {"type": "linear", "factor": 2, "attention_factor": 1.5})")),
               Contains("rope_scaling.attention_factor: unknown key"));
    CHECK_THAT(config_refusal(config_with(R"("rope_scaling": [1])")),
               Contains("rope_scaling: expected an object, found an array of 1"));
    CHECK_THAT(config_refusal(config_with(R"("partial_rotary_factor": 0.5)")),
               Contains("partial_rotary_factor"));
    CHECK_THAT(config_refusal(config_with(R"("rope_parameters": {"partial_rotary_factor": 0.25})")),
               Contains("rope_parameters.partial_rotary_factor"));
    CHECK_THAT(config_refusal(config_with(
                   R"("rope_theta": 10000.0, "rope_parameters": {"rope_theta": 20000.0})")),
               Contains("rope_parameters.rope_theta: expected the same"));
    CHECK_THAT(config_refusal(config_with(
                   R"("rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {})")),
               Contains("rope_parameters: contradicts rope_scaling"));
    CHECK_THAT(
        config_refusal(config_with(
            R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                                      "high_freq_factor": 4,
                                      "original_max_position_embeddings": 8192})")),
        Contains("rope_scaling.high_freq_factor: expected more than low_freq_factor (4), found 4"));
}

TEST_CASE("values of a wrong type or range are refused with key, range and value") {
    CHECK_THAT(
        config_refusal(replaced("num_attention_heads", "\"abc\"")),
        StartsWith("x/config.json:") &&
            EndsWith(": num_attention_heads: expected an integer from 1 to 65536, found \"abc\""));
    CHECK_THAT(config_refusal(replaced("hidden_size", "-1")),
               Contains("hidden_size: expected an integer from 1 to 1048576, found -1"));
    CHECK_THAT(config_refusal(replaced("hidden_size", "64.5")), Contains("found 64.5"));
    CHECK_THAT(config_refusal(replaced("hidden_size", "1152921504606846976")),
               Contains("found 1152921504606846976"));
    CHECK_THAT(config_refusal(replaced("hidden_size", "18446744073709551615")),
               Contains("found 18446744073709551615"));
    CHECK_THAT(config_refusal(replaced("hidden_size", "18446744073709551616")),
               Contains("hidden_size: expected an integer"));
    CHECK_THAT(config_refusal(replaced("num_hidden_layers", "null")),
               Contains("num_hidden_layers") && Contains("found null"));
    CHECK_THAT(config_refusal(replaced("vocab_size", "0")), Contains("vocab_size"));
    CHECK_THAT(config_refusal(replaced("intermediate_size", "true")),
               Contains("intermediate_size") && Contains("found true"));
    CHECK_THAT(config_refusal(config_with(R"("rms_norm_eps": 0)")),
               Contains("rms_norm_eps: expected a number from 1e-12 to 1, found 0"));
    CHECK_THAT(config_refusal(config_with(R"("rope_theta": "big")")), Contains("rope_theta"));
    CHECK_THAT(config_refusal(config_with(R"("tie_word_embeddings": 1)")),
               Contains("tie_word_embeddings: expected true or false, found 1"));
    CHECK_THAT(config_refusal(config_with(R"("eos_token_id": 256)")),
               Contains("eos_token_id: expected an integer from 0 to 255, found 256"));
    CHECK_THAT(config_refusal(config_with(R"("eos_token_id": [1, "two"])")),
               Contains("eos_token_id[1]: ") && Contains("\"two\""));
    CHECK_THAT(config_refusal(config_with(R"("bos_token_id": [1, 2])")), Contains("bos_token_id"));
    CHECK_THAT(config_refusal(config_with(R"("max_position_embeddings": 4294967296)")),
               Contains("max_position_embeddings"));
}

TEST_CASE("sizes must match each other") {
    CHECK_THAT(
        config_refusal(config_with(R"("num_key_value_heads": 3)")),
        Contains("num_key_value_heads: expected a divisor of num_attention_heads (4), found 3"));
    CHECK_THAT(config_refusal(replaced("num_attention_heads", "5")),
               Contains("head_dim: expected a value"));
    CHECK_THAT(config_refusal(config_with(R"("head_dim": 15)")),
               Contains("head_dim: expected an even number") && Contains("found 15"));
    CHECK(parse_config(config_with(R"("head_dim": 48)")).q_size() == 192);
}

TEST_CASE("each size may be large, but their product may not") {
    const auto text = config_refusal(
        R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 1048576,
        "intermediate_size": 16777216,
        "num_hidden_layers": 4096, "num_attention_heads": 65536, "vocab_size": 16777216,
        "head_dim": 64})");
    CHECK_THAT(text, Contains("parameters, expected at most 4398046511104"));
    CHECK_THAT(config_refusal(replaced("num_attention_heads", "65536, \"head_dim\": 4096")),
               Contains("65536 heads of 4096"));
}

TEST_CASE("unsupported architectures are refused with a list of the supported ones") {
    CHECK_THAT(config_refusal(R"({"architectures": ["GPT2LMHeadModel"]})"),
               StartsWith("x/config.json:1: architectures: 'GPT2LMHeadModel' is not supported; "
                          "supported: LlamaForCausalLM"));
    CHECK_THAT(config_refusal("{}"), Contains("architectures: expected one of: LlamaForCausalLM"));
    CHECK_THAT(config_refusal(R"({"model_type": "t5"})"),
               Contains("model_type: 't5' is not supported"));
    CHECK_THAT(config_refusal(R"({"architectures": "LlamaForCausalLM"})"),
               Contains("architectures: expected an array"));
    CHECK_THAT(config_refusal(R"({"architectures": [7]})"),
               Contains("architectures[0]: expected a string, found 7"));
    CHECK_THAT(config_refusal(config_with(R"("hidden_act": "relu")")),
               Contains("hidden_act: 'relu' is not supported"));
    CHECK_THAT(config_refusal(config_with(R"("quantization_config": {"quant_method": "gptq"})")),
               Contains("quantization_config") && Contains("'gptq'"));
    std::string by_type = config_with(R"("model_type": "llama")");
    by_type.erase(by_type.find("\"architectures\""),
                  std::string(R"("architectures": ["LlamaForCausalLM"], )").size());
    CHECK(parse_config(by_type).architecture->name == "LlamaForCausalLM");
}

TEST_CASE("broken JSON is reported with line and column, and exhausting JSON stops early") {
    CHECK_THAT(config_refusal("{\n  \"hidden_size\": ,\n}"),
               StartsWith("x/config.json:2:18: not valid JSON"));
    CHECK_THAT(config_refusal(""), StartsWith("x/config.json:1:1: not valid JSON"));
    CHECK_THAT(config_refusal("[1, 2]"), Contains("expected a JSON object, found an array of 2"));
    CHECK_THAT(config_refusal(config_with(R"("hidden_size": 1)")),
               Contains("'hidden_size' occurs twice"));
    CHECK_THAT(config_refusal(config_with("\"a\": " + std::string(100000, '['))),
               Contains("nested levels"));
    std::string deep = R"("a": )";
    for (int i = 0; i < 50000; ++i) deep += R"({"a":)";
    CHECK_THAT(config_refusal(config_with(deep)), Contains("nested levels"));
    CHECK_THAT(config_refusal(config_with("\"a\": \"\xff\"")),
               Contains("not valid JSON") && Contains("UTF-8"));
    CHECK_THAT(config_refusal(config_with("\"rope_theta\": 1e999")), Contains("not valid JSON"));
    CHECK_THAT(config_refusal(std::string(5 << 20, ' ')), Contains("expected at most 4.0 MiB"));
    std::string many = R"("a": [0)";
    for (int i = 0; i < 500000; ++i) many += ",0";
    CHECK_THAT(config_refusal(config_with(many + "]")), Contains("400000 values"));
    CHECK_THAT(config_refusal(R"({"architectures": ["\u001b[31mred\n"]})"),
               Contains("\\x1b[31mred\\x0a"));
}

TEST_CASE("end tokens of generation_config.json are added") {
    const TempFolder folder;
    folder.write("config.json", config_with(R"("eos_token_id": 9)"));
    CHECK(load_model_config(folder.path()).eos_ids == std::vector<int64_t>{9});
    folder.write("generation_config.json", R"({"eos_token_id": [9, 3], "temperature": 0.6})");
    CHECK(load_model_config(folder.path()).eos_ids == std::vector<int64_t>{3, 9});
    folder.write("generation_config.json", R"({"eos_token_id": 1000})");
    CHECK_THAT(error_text([&] { load_model_config(folder.path()); }),
               Contains("generation_config.json:1: eos_token_id"));
}

TEST_CASE("every prefix of a config is an error") {
    const std::string text =
        config_with(R"("rope_scaling": {"type": "linear", "factor": 4}, "eos_token_id": [1, 2])");
    for (size_t length = 0; length < text.size(); ++length)
        CHECK_THROWS_AS(parse_config(text.substr(0, length)), Error);
    CHECK_NOTHROW(parse_config(text));
}
