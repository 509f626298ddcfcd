#pragma once

#include "numbers/quantize.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <keel/tensor.h>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// Writes small models when a test runs, so that tests need neither Python nor files outside the
// source tree.

namespace keel::test {

// A tensor to write. `values` are row-major f32. They are converted to `dtype` (F32, F16 or BF16).
struct WrittenTensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
    keel_dtype dtype = KEEL_DTYPE_F32;
};

inline void write_file(const std::filesystem::path &path, std::string_view content) {
    std::ofstream out(path, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

// Returns the content of a safetensors file: the length, the header and the data. `header` is not
// checked, so it may be invalid on purpose.
inline std::string safetensors_bytes(std::string_view header, std::string_view data = {}) {
    std::string out(8, '\0');
    for (size_t i = 0; i < 8; ++i)
        out[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 255);
    return out.append(header).append(data);
}

inline std::string safetensors_bytes(const std::vector<WrittenTensor> &tensors) {
    std::string header = R"({"__metadata__":{"format":"pt"})";
    std::string data;
    for (const WrittenTensor &tensor : tensors) {
        const char *dtype = tensor.dtype == KEEL_DTYPE_F32   ? "F32"
                            : tensor.dtype == KEEL_DTYPE_F16 ? "F16"
                                                             : "BF16";
        const size_t begin = data.size();
        data.resize(begin + keel_dtype_row_bytes(tensor.dtype, tensor.values.size()));
        convert_from_f32(tensor.dtype, tensor.values.data(), data.data() + begin,
                         tensor.values.size());
        header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                              tensor.name, dtype, fmt::join(tensor.shape, ","), begin, data.size());
    }
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    return safetensors_bytes(header, data);
}

inline void write_safetensors(const std::filesystem::path &path,
                              const std::vector<WrittenTensor> &tensors) {
    write_file(path, safetensors_bytes(tensors));
}

// The shape of a random Llama. With the defaults it has 0.1 million parameters, and its rows fit
// the block types.
struct MiniLlama {
    int hidden = 64;
    int intermediate = 96;
    int layers = 2;
    int heads = 4;
    int kv_heads = 2;
    int head_dim = 0; // 0: hidden / heads
    int vocab = 256;
    int max_positions = 512;
    double rope_theta = 10000;
    bool llama3_scaling =
        // RoPE scaling of Llama 3.1 with an original context of 64 tokens, so that it affects short
        // texts
        false;
    bool tied = false;
    bool attention_bias = false;
    bool mlp_bias = false;
    int shards = 1; // more than 1: several files and an index
    keel_dtype dtype = KEEL_DTYPE_F32;
    uint32_t seed = 1;
    double std_dev =
        0.08; // larger than in real models, so that a few narrow layers distinguish tokens
};

inline std::string mini_llama_config(const MiniLlama &m) {
    const int head_dim = m.head_dim != 0 ? m.head_dim : m.hidden / m.heads;
    const std::string scaling =
        m.llama3_scaling
            ? R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
              R"("original_max_position_embeddings":64})"
            : "null";
    const char *dtype = m.dtype == KEEL_DTYPE_F32   ? "float32"
                        : m.dtype == KEEL_DTYPE_F16 ? "float16"
                                                    : "bfloat16";
    return fmt::format(
        R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_act":"silu",)"
        R"("hidden_size":{},)"
        R"("intermediate_size":{},"num_hidden_layers":{},"num_attention_heads":{},)"
        R"("num_key_value_heads":{},)"
        R"("head_dim":{},"vocab_size":{},"max_position_embeddings":{},"rms_norm_eps":1e-05,)"
        R"("rope_theta":{:.1f},)"
        R"("rope_scaling":{},"tie_word_embeddings":{},"attention_bias":{},"mlp_bias":{},)"
        R"("torch_dtype":"{}",)"
        R"("bos_token_id":{},"eos_token_id":{}}})",
        m.hidden, m.intermediate, m.layers, m.heads, m.kv_heads, head_dim, m.vocab, m.max_positions,
        m.rope_theta, scaling, m.tied, m.attention_bias, m.mlp_bias, dtype, m.vocab - 2,
        m.vocab - 1);
}

// Returns all tensors of the model with Hugging Face's names, in a fixed order. Norms are near 1;
// the others are normal noise.
inline std::vector<WrittenTensor> mini_llama_tensors(const MiniLlama &m) {
    const int64_t head_dim = m.head_dim != 0 ? m.head_dim : m.hidden / m.heads;
    std::mt19937 random(m.seed);
    std::normal_distribution<float> noise(0.0F, 1.0F);
    std::vector<WrittenTensor> tensors;
    const auto add = [&](const std::string &name, std::vector<int64_t> shape, double center,
                         double spread) {
        const int64_t count =
            std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
        WrittenTensor tensor{name, std::move(shape), std::vector<float>(static_cast<size_t>(count)),
                             m.dtype};
        for (float &value : tensor.values)
            value = static_cast<float>(center + spread * static_cast<double>(noise(random)));
        tensors.push_back(std::move(tensor));
    };
    const auto linear = [&](const std::string &name, int64_t out, int64_t in, bool bias) {
        add(name + ".weight", {out, in}, 0, m.std_dev);
        if (bias) add(name + ".bias", {out}, 0, m.std_dev);
    };
    add("model.embed_tokens.weight", {m.vocab, m.hidden}, 0, m.std_dev);
    for (int layer = 0; layer < m.layers; ++layer) {
        const std::string at = fmt::format("model.layers.{}.", layer);
        add(at + "input_layernorm.weight", {m.hidden}, 1, 0.1);
        linear(at + "self_attn.q_proj", m.heads * head_dim, m.hidden, m.attention_bias);
        linear(at + "self_attn.k_proj", m.kv_heads * head_dim, m.hidden, m.attention_bias);
        linear(at + "self_attn.v_proj", m.kv_heads * head_dim, m.hidden, m.attention_bias);
        linear(at + "self_attn.o_proj", m.hidden, m.heads * head_dim, m.attention_bias);
        add(at + "post_attention_layernorm.weight", {m.hidden}, 1, 0.1);
        linear(at + "mlp.gate_proj", m.intermediate, m.hidden, m.mlp_bias);
        linear(at + "mlp.up_proj", m.intermediate, m.hidden, m.mlp_bias);
        linear(at + "mlp.down_proj", m.hidden, m.intermediate, m.mlp_bias);
    }
    add("model.norm.weight", {m.hidden}, 1, 0.1);
    if (!m.tied) add("lm_head.weight", {m.vocab, m.hidden}, 0, m.std_dev);
    return tensors;
}

// Makes `folder` and writes config.json and the weights of a random Llama to it. There is no
// tokenizer.
inline void make_mini_llama(const std::filesystem::path &folder, const MiniLlama &model = {}) {
    std::filesystem::create_directories(folder);
    write_file(folder / "config.json", mini_llama_config(model));
    const auto tensors = mini_llama_tensors(model);
    if (model.shards <= 1) return write_safetensors(folder / "model.safetensors", tensors);
    std::string map;
    const auto shards = static_cast<size_t>(model.shards);
    for (size_t shard = 0; shard < shards; ++shard) {
        const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
        const auto begin =
            tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() * shard / shards);
        const auto end =
            tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() * (shard + 1) / shards);
        const std::vector<WrittenTensor> part(begin, end);
        write_safetensors(folder / file, part);
        for (const WrittenTensor &tensor : part) {
            map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", tensor.name, file);
        }
    }
    write_file(folder / "model.safetensors.index.json",
               "{\"metadata\":{\"total_size\":0},\"weight_map\":{" + map + "}}");
}

} // namespace keel::test
