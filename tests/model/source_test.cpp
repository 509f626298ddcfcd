#include "model/source.hpp"
#include "model/tensor_check.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

std::string source_refusal(const fs::path &path) {
    return error_text([&] { open_model_source(path); });
}

std::vector<float> source_values(const ModelSource &source, const TensorInfo &tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.elements()));
    convert_to_f32(tensor.dtype, source.bytes(tensor).data(), out.data(), out.size());
    return out;
}

} // namespace

TEST_CASE("the shipped tiny model opens, with every tensor that its config needs") {
    const auto source = open_model_source(KEEL_SOURCE_DIR "/models/tiny");
    const ModelConfig &c = source->config();
    CHECK(source->file_count() == 1);
    CHECK(source->tensors().size() == 6 * 9 + 2);
    CHECK(source->total_bytes() == c.parameter_count() * 2);
    const TensorInfo &embed =
        source->expect("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
    CHECK(embed.dtype == KEEL_DTYPE_BF16);
    source->expect("model.layers.5.self_attn.k_proj.weight", {c.kv_size(), c.hidden_size});
    source->expect("model.layers.5.mlp.down_proj.weight", {c.hidden_size, c.intermediate_size});
    CHECK(source->find("lm_head.weight") == nullptr);
    const auto before = source_values(*source, embed);
    source->drop(embed);
    CHECK(source_values(*source, embed) == before);
}

TEST_CASE("a written model reads back, whole or in shards, in each type") {
    const TempFolder folder;
    for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16}) {
        MiniLlama mini;
        mini.dtype = dtype;
        mini.attention_bias = true;
        mini.llama3_scaling = true;
        make_mini_llama(folder / "whole", mini);
        mini.shards = 3;
        fs::remove_all(folder / "shards");
        make_mini_llama(folder / "shards", mini);
        const auto whole = open_model_source(folder / "whole");
        const auto shards = open_model_source(folder / "shards");
        CHECK(whole->config().qkv_bias);
        CHECK(whole->config().rope_scaling.kind == RopeScaling::Kind::llama3);
        CHECK(shards->file_count() == 3);
        CHECK(whole->total_bytes() == whole->config().parameter_count() * keel_dtype_bytes(dtype));
        CHECK(shards->total_bytes() == whole->total_bytes());
        REQUIRE(shards->tensors().size() == whole->tensors().size());
        for (const WrittenTensor &written : mini_llama_tensors(mini)) {
            const TensorInfo &one = whole->expect(written.name, written.shape);
            const TensorInfo &other = shards->expect(written.name, written.shape);
            CHECK(one.dtype == dtype);
            CHECK(source_values(*whole, one) == source_values(*shards, other));
            if (dtype == KEEL_DTYPE_F32) CHECK(source_values(*whole, one) == written.values);
        }
    }
}

TEST_CASE("tensors that are missing or have a wrong shape or type are reported completely") {
    const TempFolder folder;
    make_mini_llama(folder / "m");
    write_safetensors(folder / "m/model.safetensors", {{"w", {2, 3}, std::vector<float>(6)}});
    const auto source = open_model_source(folder / "m");
    const std::string file = (folder / "m/model.safetensors").string();
    CHECK(error_text([&] { source->expect("v", {4}); }) ==
          (folder / "m").string() + ": tensor 'v' is missing; expected shape [4]");
    CHECK(error_text([&] {
              source->expect("w", {3, 2});
          }) == file + ": tensor 'w': config.json requires shape [3, 2], found [2, 3] of F32");
    CHECK_THAT(error_text([&] { source->expect("w", {2}); }),
               Contains("requires shape [2], found [2, 3]"));
    write_file(file,
               safetensors_bytes(R"({"w": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}})",
                                 "12345678"));
    const auto integers = open_model_source(folder / "m");
    CHECK(error_text([&] { integers->expect("w", {1}); }) ==
          file + ": tensor 'w': weights of type I64 are not supported; supported: F32, F16, BF16");
}

TEST_CASE("folders that are not models are refused with what to do") {
    const TempFolder folder;
    CHECK_THAT(source_refusal(folder / "none"),
               StartsWith((folder / "none").string()) && Contains("No such file"));
    CHECK_THAT(source_refusal(folder.write("m.gguf", "GGUF")),
               Contains("m.gguf: version: expected 4 bytes at offset 4, found only 0"));
    CHECK_THAT(source_refusal(folder.write("m.safetensors", "x")),
               Contains("expected the folder of a model or a GGUF file, found another file"));
    CHECK_THAT(source_refusal(folder.path()), Contains("config.json is missing"));
    folder.write("meta/params.json", "{}");
    CHECK_THAT(source_refusal(folder / "meta"), Contains("Meta's original format"));
}

TEST_CASE("for a folder without safetensors, the error lists its other model files") {
    const TempFolder folder;
    folder.write("config.json", mini_llama_config({}));
    CHECK_THAT(source_refusal(folder.path()),
               Contains("model.safetensors is missing; is the download complete?"));
    folder.write("a.gguf", "");
    CHECK_THAT(source_refusal(folder.path()), Contains("'a.gguf': give the path of this file"));
    folder.write("pytorch_model.bin", "");
    CHECK_THAT(source_refusal(folder.path()),
               Contains("'pytorch_model.bin'") && Contains("convert them to safetensors"));
    folder.write("model-00001-of-00002.safetensors", "");
    CHECK_THAT(source_refusal(folder.path()), Contains("'model-00001-of-00002.safetensors'") &&
                                                  Contains("model.safetensors.index.json"));
}

TEST_CASE("damaged weights are reported with their file") {
    const TempFolder folder;
    make_mini_llama(folder / "m");
    const fs::path file = folder / "m/model.safetensors";
    fs::resize_file(file, fs::file_size(file) - 1);
    CHECK_THAT(source_refusal(folder / "m"),
               StartsWith(file.string() + ": header: lm_head.weight.data_offsets") &&
                   Contains("cut short"));
    fs::resize_file(file, 0);
    CHECK_THAT(source_refusal(folder / "m"),
               StartsWith(file.string() + ": expected a safetensors file"));
}

TEST_CASE("shards and their index must agree") {
    const TempFolder folder;
    MiniLlama mini;
    mini.shards = 2;
    make_mini_llama(folder / "m", mini);
    const fs::path index = folder / "m/model.safetensors.index.json";
    const fs::path second = folder / "m/model-00002-of-00002.safetensors";
    const auto map = [&](const std::string &entries) {
        write_file(index, "{\"weight_map\": {" + entries + "}}");
    };
    const std::string one = "\"model-00001-of-00002.safetensors\"";
    const std::string two = "\"model-00002-of-00002.safetensors\"";
    write_safetensors(folder / "m/model-00001-of-00002.safetensors",
                      {{"a", {1}, {1}}, {"b", {1}, {2}}});
    write_safetensors(second, {{"c", {1}, {3}}});

    map("\"a\":" + one + ",\"b\":" + one + ",\"c\":" + two);
    CHECK(open_model_source(folder / "m")->tensors().size() == 3);
    map("\"a\":" + one + ",\"b\":" + one + ",\"c\":" + two + ",\"d\":" + two);
    CHECK_THAT(source_refusal(folder / "m"),
               Contains("index.json: tensor 'd' should be in 'model-00002-of-00002.safetensors', "
                        "but is in none"));
    map("\"a\":" + one + ",\"b\":" + two + ",\"c\":" + two);
    CHECK_THAT(source_refusal(folder / "m"), Contains("tensor 'b' should be in 'model-00002") &&
                                                 Contains("but is in") && Contains("00001-of"));
    map("\"a\":" + one + ",\"c\":" + two);
    CHECK_THAT(source_refusal(folder / "m"),
               Contains("model-00001-of-00002.safetensors: tensor 'b' is not listed in"));
    map("\"a\":\"../m/model-00001-of-00002.safetensors\"");
    CHECK_THAT(source_refusal(folder / "m"), Contains("expected the plain name"));

    map("\"a\":" + one + ",\"b\":" + one + ",\"c\":" + two);
    write_safetensors(second, {{"c", {1}, {3}}, {"a", {1}, {4}}});
    CHECK_THAT(source_refusal(folder / "m"),
               Contains("00002-of-00002.safetensors: tensor 'a' is also in") &&
                   Contains("00001-of"));
    fs::remove(second);
    CHECK_THAT(source_refusal(folder / "m"),
               StartsWith(second.string() + ": the shard is missing, but ") &&
                   Contains("lists it"));
}

TEST_CASE("checking a tensor finds every value that is not finite, and the range of the others") {
    const TempFolder folder;
    make_mini_llama(folder / "m");
    std::vector<float> noisy(10000, 0.5F);
    noisy[0] = -std::numeric_limits<float>::infinity();
    noisy[1] = -2.0F;
    noisy[9998] = 3.0F;
    noisy[9999] = std::nanf("");
    write_safetensors(folder / "m/model.safetensors",
                      {{"noisy", {100, 100}, noisy, KEEL_DTYPE_BF16},
                       {"empty", {0, 4}, {}},
                       {"flat", {2}, {-1, -1}}});
    const auto source = open_model_source(folder / "m");
    const TensorCheck check = check_tensor(*source, *source->find("noisy"));
    CHECK(check.elements == 10000);
    CHECK(check.not_finite == 2);
    CHECK(check.first_not_finite == 0);
    CHECK(check.low == -2.0);
    CHECK(check.high == 3.0);
    CHECK(check.mean == Approx((9996 * 0.5 + 1) / 9998));
    CHECK(check.rms == Approx(std::sqrt((9996 * 0.25 + 13) / 9998)));
    CHECK(check_tensor(*source, *source->find("empty")).elements == 0);
    const TensorCheck flat = check_tensor(*source, *source->find("flat"));
    CHECK(flat.high == -1.0);
    CHECK_FALSE(flat.first_not_finite.has_value());
    WeightsCheck all(*source);
    uint64_t bytes = 0;
    all.work([&](uint64_t read) { return (bytes = read) > 0; });
    CHECK(bytes == source->total_bytes());
    const std::vector<BadTensor> bad = all.result();
    REQUIRE(bad.size() == 1);
    CHECK(bad[0].name == "noisy");
    CHECK(bad[0].not_finite == 2);
    CHECK(bad[0].first_index == std::vector<int64_t>{0, 0});
    WeightsCheck stopped(*source);
    stopped.work([](uint64_t) { return false; });
    CHECK(stopped.result().size() == 1); // the tensor "noisy" is the first one
    write_file(folder / "m/model.safetensors",
               safetensors_bytes(R"({"w": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}})",
                                 "12345678"));
    const auto integers = open_model_source(folder / "m");
    CHECK_THAT(error_text([&] { check_tensor(*integers, *integers->find("w")); }),
               Contains("tensor 'w'") && Contains("I64"));
    WeightsCheck refused(*integers);
    refused.work([](uint64_t) { return true; });
    CHECK_THAT(error_text([&] { refused.result(); }), Contains("tensor 'w'"));
}
