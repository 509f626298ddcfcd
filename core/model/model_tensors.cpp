#include "model/model_tensors.hpp"

#include <fmt/format.h>
#include <unordered_set>

namespace keel {

std::vector<std::string> check_model_tensors(const ModelSource &source) {
    const ModelConfig &c = source.config();
    std::unordered_set<std::string> known;
    const auto expect = [&](std::string name, std::initializer_list<int64_t> shape) {
        source.expect(name, shape);
        known.insert(std::move(name));
    };
    const auto linear = [&](const std::string &name, int64_t out, int64_t in, bool bias) {
        expect(name + ".weight", {out, in});
        if (bias) expect(name + ".bias", {out});
    };
    expect("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
    for (int64_t i = 0; i < c.layers; ++i) {
        const std::string layer = fmt::format("model.layers.{}.", i);
        expect(layer + "input_layernorm.weight", {c.hidden_size});
        linear(layer + "self_attn.q_proj", c.q_size(), c.hidden_size, c.attention_bias);
        linear(layer + "self_attn.k_proj", c.kv_size(), c.hidden_size, c.attention_bias);
        linear(layer + "self_attn.v_proj", c.kv_size(), c.hidden_size, c.attention_bias);
        linear(layer + "self_attn.o_proj", c.hidden_size, c.q_size(), c.attention_bias);
        expect(layer + "post_attention_layernorm.weight", {c.hidden_size});
        linear(layer + "mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
        linear(layer + "mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
        linear(layer + "mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
    }
    expect("model.norm.weight", {c.hidden_size});
    if (!c.tied_embeddings) expect("lm_head.weight", {c.vocab_size, c.hidden_size});
    std::vector<std::string> unused;
    for (const TensorInfo &tensor : source.tensors()) {
        if (!known.contains(tensor.name)) unused.push_back(tensor.name);
    }
    return unused;
}

} // namespace keel
