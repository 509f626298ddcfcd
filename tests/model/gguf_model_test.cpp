// Tests of GGUF files as models: names, orders, sizes, parts, and refused files.

#include "model/model_tensors.hpp"
#include "model/source.hpp"
#include "support/error_text.hpp"
#include "support/gguf_bytes.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
namespace fs = std::filesystem;

namespace {

const std::string golden_folder = KEEL_SOURCE_DIR "/tests/golden/";

std::vector<float> model_values(const ModelSource &source, const TensorInfo &tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.elements()));
    if (tensor.shape.size() == 1) {
        source.read_vector(tensor, out.data());
    } else {
        source.convert(tensor, KEEL_DTYPE_F32, out.data());
    }
    return out;
}

// Returns a Llama of one layer with hidden size 32 that has all required keys. With another `name`,
// its keys are those of another architecture.
GgufBytes sound_model(const std::string &name = "llama") {
    GgufBytes file;
    file.key("general.architecture", name.c_str());
    const auto number = [&](const char *key, uint32_t value) { file.key(name + "." + key, value); };
    number("context_length", 64);
    number("embedding_length", 32);
    number("block_count", 1);
    number("feed_forward_length", 64);
    number("attention.head_count", 2);
    number("attention.head_count_kv", 1);
    file.key(name + ".attention.layer_norm_rms_epsilon", 1e-5F);
    const auto tensor = [&](const char *tensor_name, uint64_t rows, uint64_t columns) {
        const std::vector<uint64_t> sizes =
            rows == 0 ? std::vector<uint64_t>{columns} : std::vector{columns, rows};
        file.tensor(tensor_name, sizes, ggml::f32,
                    std::string(std::max<uint64_t>(rows, 1) * columns * 4, '\0'));
    };
    tensor("token_embd.weight", 8, 32);
    tensor("output_norm.weight", 0, 32);
    tensor("blk.0.attn_norm.weight", 0, 32);
    tensor("blk.0.attn_q.weight", 32, 32);
    tensor("blk.0.attn_k.weight", 16, 32);
    tensor("blk.0.attn_v.weight", 16, 32);
    tensor("blk.0.attn_output.weight", 32, 32);
    tensor("blk.0.ffn_norm.weight", 0, 32);
    tensor("blk.0.ffn_gate.weight", 64, 32);
    tensor("blk.0.ffn_up.weight", 64, 32);
    tensor("blk.0.ffn_down.weight", 32, 64);
    return file;
}

// Returns sound_model() without a key: its bytes are replaced by another key of the same length. So
// a key can be missing or have another value.
GgufBytes without(const std::string &key) {
    GgufBytes file = sound_model();
    const size_t at = file.keys.find(GgufBytes::text(key));
    REQUIRE(at != std::string::npos);
    file.keys[at + 8] = 'X';
    return file;
}

std::shared_ptr<const ModelSource> open(const GgufBytes &file, const TempFolder &folder) {
    return open_model_source(folder.write("m.gguf", file.bytes()));
}

std::string model_refusal(const GgufBytes &file) {
    const TempFolder folder;
    return error_text([&] { check_model_tensors(*open(file, folder)); });
}

} // namespace

TEST_CASE("the gguf package's miniature has the folder's names, shapes, orders and values") {
    const auto source = open_model_source(golden_folder + "mini_gguf.gguf");
    const ModelConfig &c = source->config();
    CHECK(c.architecture->name == "LlamaForCausalLM");
    CHECK(c.layers == 1);
    CHECK(c.vocab_size == 48);
    CHECK(c.head_dim == 16);
    CHECK(c.rms_norm_eps == 1e-5);
    CHECK(c.rope_theta == 500000);
    CHECK(c.qkv_bias);
    CHECK_FALSE(c.tied_embeddings);
    CHECK(c.bos_id == 1);
    CHECK(c.eos_ids == std::vector<int64_t>{2});
    CHECK(check_model_tensors(*source).empty());

    std::ifstream in(golden_folder + "mini_gguf.json");
    const auto expected = nlohmann::json::parse(in);
    CHECK(c.rope_scaling.kind == RopeScaling::Kind::factors);
    CHECK(c.rope_scaling.factors == expected.at("factors").get<std::vector<double>>());
    for (const auto &[name, tensor] : expected.at("tensors").items()) {
        INFO(name);
        const TensorInfo &found =
            source->expect(name, tensor.at("shape").get<std::vector<int64_t>>());
        CHECK(found.stored_name == tensor.at("stored"));
        CHECK(found.dtype_name == tensor.at("type"));
        const auto v = model_values(*source, found);
        double sum = 0, weighted = 0;
        for (size_t i = 0; i < v.size(); ++i) {
            sum += v[i];
            weighted += static_cast<double>(v[i]) * static_cast<double>(i % 1009);
        }
        for (size_t i = 0; i < 4; ++i)
            CHECK(static_cast<double>(v[i]) == tensor.at("first")[i].get<double>());
        CHECK(sum == Approx(tensor.at("sum").get<double>()).epsilon(1e-9));
        CHECK(weighted == Approx(tensor.at("weighted").get<double>()).epsilon(1e-9));
    }
}

TEST_CASE("block types are converted to q8_0 or the requested type, which is reported") {
    const auto source = open_model_source(golden_folder + "mini_gguf.gguf");
    const auto conversions = source->conversions(KEEL_DTYPE_NONE, all_weight_dtypes);
    REQUIRE(conversions.size() == 3); // Q4_1, Q5_0, Q5_1
    CHECK(conversion_text(conversions[0]) ==
          "1 Q4_1 tensor is converted to q8_0: 3.8 KiB become 6.4 KiB");
    const TensorInfo &gate = *source->find("model.layers.0.mlp.gate_proj.weight");
    CHECK(gate.dtype == KEEL_DTYPE_NONE);
    CHECK(loaded_bytes(gate, KEEL_DTYPE_NONE, 0) == 96 * 64 / 32 * 34);
    CHECK(loaded_bytes(gate, KEEL_DTYPE_F16, 0) == 96 * 64 * 2);
    CHECK_FALSE(source->in_place(gate, KEEL_DTYPE_Q8_0));
    CHECK(
        source->in_place(*source->find("model.layers.0.self_attn.v_proj.weight"), KEEL_DTYPE_BF16));
    CHECK_FALSE(
        source->in_place(*source->find("model.layers.0.self_attn.q_proj.weight"), KEEL_DTYPE_F16));
    std::vector<std::byte> q8(loaded_bytes(gate, KEEL_DTYPE_NONE, 0));
    source->convert(gate, KEEL_DTYPE_Q8_0, q8.data());
    const auto exact = model_values(*source, gate);
    std::vector<float> back(exact.size());
    convert_to_f32(KEEL_DTYPE_Q8_0, q8.data(), back.data(), back.size());
    for (size_t i = 0; i < exact.size(); ++i) REQUIRE(std::abs(back[i] - exact[i]) < 0.01F);
}

TEST_CASE("a GGUF model with a missing key is refused with the key's name") {
    const TempFolder folder;
    CHECK(check_model_tensors(*open(sound_model(), folder)).empty());
    CHECK_THAT(model_refusal(without("general.architecture")),
               Contains("m.gguf: metadata key 'general.architecture' is missing"));
    CHECK_THAT(model_refusal(without("llama.context_length")),
               Contains("metadata key 'llama.context_length' is missing"));
    CHECK_THAT(model_refusal(without("llama.embedding_length")),
               Contains("metadata key 'llama.embedding_length': expected"));
    CHECK_THAT(model_refusal(without("llama.block_count")),
               Contains("metadata key 'llama.block_count': expected"));
    CHECK_THAT(model_refusal(without("llama.feed_forward_length")),
               Contains("'llama.feed_forward_length': expected"));
    CHECK_THAT(model_refusal(without("llama.attention.head_count")),
               Contains("'llama.attention.head_count': expected"));
    CHECK_THAT(model_refusal(without("llama.attention.layer_norm_rms_epsilon")),
               Contains("epsilon' is missing"));
    CHECK_THAT(model_refusal(sound_model("command-r")
                                 .key("command-r.attention.layer_norm_epsilon", 1e-5F)
                                 .key("command-r.logit_scale", 0.5F)),
               Contains("metadata key 'command-r.rope.freq_base': expected a number"));
    GgufBytes file;
    file.key("general.architecture", "mamba");
    CHECK_THAT(
        model_refusal(file),
        Contains(
            "metadata key 'general.architecture': 'mamba' is not supported; supported: llama"));
    CHECK_THAT(model_refusal(sound_model().key("llama.expert_count", uint32_t{8})),
               Contains("metadata key 'llama.expert_used_count' is missing"));
    CHECK_THAT(model_refusal(sound_model().key("llama.rope.scaling.attn_factor", 1.5F)),
               Contains("metadata key 'llama.rope.scaling.attn_factor': 1.5 is not supported"));
    CHECK_THAT(model_refusal(sound_model().key("llama.rope.scaling.type", "dynamic")),
               Contains("metadata key 'llama.rope.scaling.type': 'dynamic' scaling is not "
                        "supported"));
    CHECK_THAT(model_refusal(sound_model().key("llama.rope.scaling.type", "yarn")),
               Contains("metadata key 'llama.rope.scaling.factor': expected a number"));
    CHECK_THAT(model_refusal(sound_model().key("llama.rope.freq_base", "high")),
               Contains("metadata key 'llama.rope.freq_base': expected a number"));
    CHECK_THAT(model_refusal(sound_model().key("llama.rope.freq_base",
                                               std::numeric_limits<float>::quiet_NaN())),
               Contains("metadata key 'llama.rope.freq_base': expected a number"));
    CHECK_THAT(model_refusal(sound_model().key("llama.rope.dimension_count", uint32_t{8})),
               Contains("RoPE on 8 of the 16 elements of each head is not supported"));
    CHECK_THAT(model_refusal(sound_model().key("llama.attention.value_length", uint32_t{8})),
               Contains("keys of 16 and values of 8"));
    CHECK_THAT(
        model_refusal(sound_model().key("tokenizer.ggml.eos_token_id", uint32_t{8})),
        Contains("metadata key 'tokenizer.ggml.eos_token_id': expected a token below 8, found 8"));
    CHECK(open(sound_model().key("tokenizer.ggml.eos_token_id", UINT32_MAX), folder)
              ->config()
              .eos_ids.empty());
    CHECK(open(sound_model()
                   .key("llama.rope.scaling.type", "linear")
                   .key("llama.rope.scaling.factor", 4.0F),
               folder)
              ->config()
              .rope_scaling.factor == 4);
}

TEST_CASE("a GGUF file in a backend's own layout is refused") {
    GgufBytes file;
    file.key("general.architecture", "llama").key("keel.layout", "cpu/interleaved-16/1");
    file.tensor("blk.0.attn_v.weight.laid_out", {64}, 24, std::string(64, '\1'));
    CHECK_THAT(model_refusal(file),
               Contains("m.gguf: metadata key 'keel.layout': the weights are stored in the private "
                        "layout of a backend, \"cpu/interleaved-16/1\", which Keel no longer "
                        "reads; use the model from which this file was made"));
}

TEST_CASE(
    "GGUF tensors that are missing or have a wrong shape or type are refused by their GGUF names") {
    GgufBytes file = sound_model();
    const size_t at = file.tensors.find("blk.0.ffn_up.weight");
    file.tensors[at] = 'X';
    CHECK_THAT(
        model_refusal(file),
        EndsWith("m.gguf: tensor 'blk.0.ffn_up.weight' is missing; expected shape [64, 32]"));
    file = sound_model();
    file.keys.replace(file.keys.find("llama.feed_forward_length") + 25, 8,
                      GgufBytes::number(uint32_t{4}) + GgufBytes::number(uint32_t{96}));
    CHECK_THAT(model_refusal(file), Contains("tensor 'blk.0.ffn_gate.weight': its metadata "
                                             "requires shape [96, 32], found [64, 32] of F32"));
    file = sound_model();
    const size_t type = file.tensors.find("blk.0.attn_v.weight") + 19 + 4 + 16;
    file.tensors.replace(type, 4, GgufBytes::number(uint32_t{26})); // I32
    CHECK_THAT(
        model_refusal(file),
        Contains(
            "tensor 'blk.0.attn_v.weight': weights of type I32 are not supported; supported: F32"));
    file = sound_model();
    file.tensor("rope_freqs.weight", {8}, ggml::f32, std::string(32, '\0'));
    CHECK_THAT(model_refusal(file),
               Contains("tensor 'rope_freqs.weight': expected factors from 1e-6 to 1e6, found 0"));
    file = sound_model();
    file.tensor("rope_freqs.weight", {4}, ggml::f32, std::string(16, '\0'));
    CHECK_THAT(model_refusal(file),
               Contains("tensor 'rope_freqs.weight': expected [8] of F32, found [4] of F32"));
}

namespace {

// Returns the same model in two files.
std::pair<GgufBytes, GgufBytes> split() {
    GgufBytes first = sound_model(), second;
    const auto mark = [](GgufBytes &file, uint32_t part) {
        file.raw_key("split.no", 2, GgufBytes::number(static_cast<uint16_t>(part)));
        file.raw_key("split.count", 2, GgufBytes::number(uint16_t{2}));
        file.raw_key("split.tensors.count", 5, GgufBytes::number(int32_t{12}));
    };
    mark(first, 0);
    mark(second, 1);
    second.tensor("output.weight", {32, 8}, ggml::f32, std::string(1024, '\0'));
    return {first, second};
}

} // namespace

TEST_CASE("a window of 0 in a GGUF file means no window, and another window makes it a Mistral") {
    const TempFolder folder;
    const auto none =
        open(sound_model().key("llama.attention.sliding_window", uint32_t{0}), folder);
    CHECK(none->config().architecture->name == "LlamaForCausalLM");
    CHECK_FALSE(none->config().sliding_window);
    const auto some =
        open(sound_model().key("llama.attention.sliding_window", uint32_t{7}), folder);
    CHECK(some->config().architecture->name == "MistralForCausalLM");
    CHECK(some->config().window(0) == 7);
}

namespace {

GgufBytes with_yarn(const std::string &name) {
    return sound_model(name)
        .key(name + ".rope.scaling.type", "yarn")
        .key(name + ".rope.scaling.factor", 8.0F)
        .key(name + ".rope.scaling.original_context_length", uint32_t{16});
}

double yarn_factor(const GgufBytes &file) {
    const TempFolder folder;
    return open(file, folder)->config().rope_scaling.attention_factor;
}

GgufBytes olmo_with_pattern(uint32_t type, const std::string &value) {
    return sound_model("olmo2")
        .key("olmo2.attention.sliding_window", uint32_t{7})
        .raw_key("olmo2.attention.sliding_window_pattern", type, value);
}

} // namespace

TEST_CASE("an additional bias in a GGUF file is refused, unless all its values are zero") {
    const auto with_bias = [](std::string values) {
        values.resize(128);
        return sound_model().tensor("blk.0.attn_output.bias", {32}, ggml::f32, values);
    };
    const TempFolder folder;
    CHECK(check_model_tensors(*open(with_bias(""), folder)) ==
          std::vector<std::string>{"model.layers.0.self_attn.o_proj.bias"});
    CHECK_THAT(model_refusal(with_bias(std::string(64, '\0') + GgufBytes::number(0.5F))),
               Contains("tensor 'blk.0.attn_output.bias': expected no such tensor in "
                        "LlamaForCausalLM with this config"));
}

TEST_CASE("a GGUF file with M-RoPE is refused") {
    CHECK_THAT(model_refusal(sound_model("glm4").raw_key("glm4.rope.dimension_sections", 9,
                                                         GgufBytes::number(uint32_t{5}) +
                                                             GgufBytes::number(uint64_t{1}) +
                                                             GgufBytes::number(int32_t{8}))),
               Contains("metadata key 'glm4.rope.dimension_sections': RoPE with several positions "
                        "for each token (M-RoPE) is not supported"));
}

TEST_CASE("YaRN's factor of cos and sin comes from the keys that its converter wrote") {
    const double usual = 1 + 0.1 * std::log(8.0);
    const auto stored = static_cast<float>(usual);
    const std::string attention = ".rope.scaling.attn_factor",
                      whole = ".rope.scaling.yarn_attn_factor",
                      multiplier = ".rope.scaling.yarn_log_multiplier";
    CHECK(yarn_factor(with_yarn("llama")) == usual);
    CHECK(yarn_factor(with_yarn("llama").key("llama" + attention, 2.0F)) == 2 * usual);
    CHECK(yarn_factor(with_yarn("llama").key("llama" + attention, static_cast<float>(1 / usual))) ==
          1);
    CHECK(yarn_factor(with_yarn("llama").key("llama" + multiplier, 1.0F)) == 1);
    CHECK(yarn_factor(with_yarn("llama").key("llama" + whole, stored)) == usual);
    CHECK_THAT(model_refusal(with_yarn("llama").key("llama" + whole, 1.5F)),
               Contains("metadata key 'llama.rope.scaling.yarn_attn_factor': expected 1.2079442, "
                        "the factor of cos and sin that the other keys of YaRN give; found 1.5"));
    CHECK(yarn_factor(with_yarn("olmo2")) == usual);
    CHECK(yarn_factor(with_yarn("olmo2").key("olmo2" + attention, stored)) == usual);
    CHECK(yarn_factor(with_yarn("olmo2").key("olmo2" + whole, 1.5F)) == 1.5);
    CHECK(yarn_factor(
              with_yarn("olmo2").key("olmo2" + attention, 1.5F).key("olmo2" + whole, 1.5F)) == 1.5);
    CHECK_THAT(model_refusal(
                   with_yarn("olmo2").key("olmo2" + attention, 1.5F).key("olmo2" + whole, 1.25F)),
               Contains("yarn_attn_factor': expected 1.5") && Contains("found 1.25"));
    CHECK_THAT(model_refusal(with_yarn("olmo2").key("olmo2" + whole, -1.0F)),
               Contains("metadata key 'olmo2.rope.scaling.yarn_attn_factor': expected a number"));
}

TEST_CASE("a GGUF file of mistral3 is a Ministral 3 if it has YaRN, else a Mistral") {
    const TempFolder folder;
    const auto mistral = open(sound_model("mistral3"), folder);
    CHECK(mistral->config().architecture->name == "MistralForCausalLM");
    CHECK_FALSE(mistral->config().sliding_window);
    CHECK(mistral->find("model.layers.0.self_attn.q_proj.weight")->interleaved_heads == 2);
    CHECK(check_model_tensors(*mistral).empty());
    const auto ministral = open(with_yarn("mistral3"), folder);
    CHECK(ministral->config().architecture->name == "Ministral3ForCausalLM");
    CHECK(ministral->find("model.layers.0.self_attn.k_proj.weight")->interleaved_heads == 1);
}

TEST_CASE("a GGUF file with a window in other layers than its architecture has is refused") {
    const TempFolder folder;
    const auto flags = [](const std::string &values) {
        return GgufBytes::number(uint32_t{7}) + GgufBytes::number(uint64_t{values.size()}) + values;
    };
    CHECK(open(olmo_with_pattern(9, flags("\1")), folder)->config().window(0) == 7);
    CHECK(open(olmo_with_pattern(4, GgufBytes::number(uint32_t{4})), folder)->config().window(0) ==
          7);
    const std::string place = "metadata key 'olmo2.attention.sliding_window_pattern': expected ";
    CHECK_THAT(model_refusal(olmo_with_pattern(9, flags(std::string(1, '\0')))),
               Contains(place + "layer 0 with a window, as in every Olmo3ForCausalLM"));
    CHECK_THAT(model_refusal(olmo_with_pattern(4, GgufBytes::number(uint32_t{1}))),
               Contains(place + "layer 0 with a window"));
    CHECK_THAT(model_refusal(olmo_with_pattern(9, flags(""))),
               Contains(place + "a boolean for each of 1 layers"));
    CHECK_THAT(model_refusal(olmo_with_pattern(8, GgufBytes::text("x"))),
               Contains("expected an integer"));
}

TEST_CASE("split GGUF files are one model, and parts of different models are refused") {
    const TempFolder folder;
    const auto write = [&](const GgufBytes &first, const GgufBytes &second) {
        folder.write("m-00002-of-00002.gguf", second.bytes());
        return folder.write("m-00001-of-00002.gguf", first.bytes());
    };
    auto parts = split(); // by name, because a lambda must not capture a structured binding
    auto &first = parts.first, &second = parts.second;
    const fs::path path = write(first, second);
    const auto source = open_model_source(path);
    CHECK(source->file_count() == 2);
    CHECK_FALSE(source->config().tied_embeddings);
    CHECK(check_model_tensors(*source).empty());
    CHECK_THAT(error_text([&] { open_model_source(folder / "m-00002-of-00002.gguf"); }),
               Contains("this is file 2 of 2; give the first one"));
    second.raw_tensor("blk.0.attn_q.weight", {1}, ggml::f32, 1024);
    second.data.resize(1056);
    CHECK_THAT(error_text([&] { open_model_source(write(first, second)); }),
               Contains("is also in"));
    second = split().second;
    second.raw_tensor("more", {1}, ggml::f32, 1024);
    second.data.resize(1056);
    CHECK_THAT(error_text([&] { open_model_source(write(first, second)); }),
               Contains("split.tensors.count is 12, but the 2 files have 13 tensors"));
    CHECK_THAT(error_text([&] { open_model_source(write(first, split().first)); }),
               Contains("expected part 2 of 2, found part 1 of 2"));
    CHECK_THAT(error_text([&] { open_model_source(folder.write("other.gguf", first.bytes())); }),
               Contains("its name must end in '-00001-of-00002.gguf'"));
    fs::remove(folder / "m-00002-of-00002.gguf");
    CHECK_THAT(error_text([&] { open_model_source(path); }),
               Contains("m-00002-of-00002.gguf: the file is missing"));
}
