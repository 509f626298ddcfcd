#include "model/model_tensors.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_set>

namespace keel {
namespace {

// Makes the parts of one layer from the tensor names of its architecture.
class LayerNaming {
  public:
    LayerNaming(const ModelConfig &config, int64_t layer)
        : names_(config.architecture->names), prefix_(fmt::format("model.layers.{}.", layer)) {}

    struct Linear {
        std::string_view name;
        int64_t rows;
    };
    WeightParts matrix(std::initializer_list<Linear> parts, int64_t cols) const {
        return make(parts, ".weight", cols);
    }
    WeightParts bias(bool wanted, std::initializer_list<Linear> parts) const {
        return wanted ? make(parts, ".bias", 0) : WeightParts{};
    }
    WeightParts norm(bool wanted, std::string_view name, int64_t n) const {
        return wanted ? make({{name, n}}, ".weight", 0) : WeightParts{};
    }
    const LayerNames &names() const { return names_; }

    // The matrices of all experts, which have these parts each.
    WeightParts experts(int64_t count, std::initializer_list<Linear> parts, int64_t cols) const {
        WeightParts made;
        made.cols = cols;
        made.experts = count;
        for (int64_t e = 0; e < count; ++e)
            for (const Linear &part : parts)
                made.parts.push_back(
                    {fmt::format("{}{}.{}.{}.weight", prefix_, names_.experts, e, part.name),
                     part.rows});
        return made;
    }

  private:
    WeightParts make(std::initializer_list<Linear> parts, std::string_view suffix,
                     int64_t cols) const {
        WeightParts made;
        made.cols = cols;
        for (const Linear &part : parts)
            made.parts.push_back({fmt::format("{}{}{}", prefix_, part.name, suffix), part.rows});
        return made;
    }

    const LayerNames &names_;
    std::string prefix_;
};

// The weights of a feed-forward with experts.
void add_experts(const ModelConfig &c, const LayerNaming &name, LayerParts &l) {
    const LayerNames &n = name.names();
    const Experts &e = c.experts;
    l.router = name.matrix({{n.router, e.count}}, c.hidden_size);
    l.router.as_f32 = true;
    l.expert_gate_up =
        name.experts(e.count, {{n.expert_gate, e.size}, {n.expert_up, e.size}}, c.hidden_size);
    l.expert_down = name.experts(e.count, {{n.expert_down, c.hidden_size}}, e.size);
    if (e.shared_size == 0) return;
    l.shared_router = name.matrix({{n.shared_router, 1}}, c.hidden_size);
    l.shared_router.as_f32 = true;
    l.gate_up =
        name.matrix({{n.shared_gate, e.shared_size}, {n.shared_up, e.shared_size}}, c.hidden_size);
    l.down = name.matrix({{n.shared_down, c.hidden_size}}, e.shared_size);
}

} // namespace

std::vector<const WeightParts *> LayerParts::all() const {
    return {&attention_norm,
            &qkv,
            &qkv_bias,
            &q_norm,
            &k_norm,
            &attention_out,
            &attention_out_bias,
            &post_attention_norm,
            &ffn_norm,
            &gate_up,
            &gate_up_bias,
            &down,
            &down_bias,
            &post_ffn_norm,
            &router,
            &expert_gate_up,
            &expert_down,
            &shared_router};
}

WeightParts expert_parts(const WeightParts &all, size_t first, size_t count) {
    WeightParts some = all;
    some.parts.clear();
    const size_t each = all.parts.size() / static_cast<size_t>(all.experts);
    for (size_t i = 0; i < all.parts.size(); ++i)
        if (i % each >= first && i % each < first + count) some.parts.push_back(all.parts[i]);
    return some;
}

ModelParts model_parts(const ModelConfig &c) {
    ModelParts parts;
    parts.embedding = {{{"model.embed_tokens.weight", c.vocab_size}}, c.hidden_size};
    parts.final_norm = {{{"model.norm.weight", c.hidden_size}}, 0};
    if (!c.tied_embeddings) parts.output = {{{"lm_head.weight", c.vocab_size}}, c.hidden_size};
    return parts;
}

LayerParts layer_parts(const ModelConfig &c, int64_t layer) {
    using Linear = LayerNaming::Linear;
    const LayerNaming name(c, layer);
    const LayerNames &n = name.names();
    const Linear q{n.q, c.q_size()}, k{n.k, c.kv_size()}, v{n.v, c.kv_size()};
    const Linear attention_out{n.attention_out, c.hidden_size}, down{n.down, c.hidden_size};
    const Linear gate{n.gate, c.intermediate_size}, up{n.up, c.intermediate_size};
    LayerParts l;
    const bool is_joint = c.qk_norm_joint;
    l.attention_norm = name.norm(c.pre_norms, n.attention_norm, c.hidden_size);
    if (n.qkv.empty()) {
        l.qkv = name.matrix({q, k, v}, c.hidden_size);
        l.qkv_bias = name.bias(c.qkv_bias, {q, k, v});
    } else {
        const Linear qkv{n.qkv, c.q_size() + 2 * c.kv_size()};
        l.qkv = name.matrix({qkv}, c.hidden_size);
        l.qkv_bias = name.bias(c.qkv_bias, {qkv});
    }
    l.q_norm = name.norm(c.qk_norm, n.q_norm, is_joint ? c.q_size() : c.head_dim);
    l.k_norm = name.norm(c.qk_norm, n.k_norm, is_joint ? c.kv_size() : c.head_dim);
    l.attention_out = name.matrix({attention_out}, c.q_size());
    l.attention_out_bias = name.bias(c.attention_out_bias, {attention_out});
    l.post_attention_norm = name.norm(c.post_norms, n.post_attention_norm, c.hidden_size);
    l.ffn_norm = name.norm(c.pre_norms && !c.parallel_blocks, n.ffn_norm, c.hidden_size);
    l.post_ffn_norm = name.norm(c.post_norms, n.post_ffn_norm, c.hidden_size);
    if (c.experts.count > 0) {
        add_experts(c, name, l);
        return l;
    }
    if (n.gate_up.empty()) {
        l.gate_up = name.matrix({gate, up}, c.hidden_size);
        l.gate_up_bias = name.bias(c.mlp_bias, {gate, up});
    } else {
        const Linear gate_up{n.gate_up, 2 * c.intermediate_size};
        l.gate_up = name.matrix({gate_up}, c.hidden_size);
        l.gate_up_bias = name.bias(c.mlp_bias, {gate_up});
    }
    l.down = name.matrix({down}, c.intermediate_size);
    l.down_bias = name.bias(c.mlp_bias, {down});
    return l;
}

namespace {

// Returns true if the tensor is a bias without effect, because all its values are zero.
bool is_zero_bias(const ModelSource &source, const TensorInfo &tensor) {
    if (!tensor.name.ends_with(".bias") || tensor.shape.size() != 1 ||
        !is_weight_dtype(tensor.dtype))
        return false;
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    source.read(tensor, 0, values.size(), values.data());
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

// Throws if a layer has a tensor that the model does not use, because its effect would be lost.
// Buffers of RoPE, which older files have, have no effect. Some models have biases of zeros.
void refuse_in_layer(const ModelSource &source, const TensorInfo &tensor) {
    const std::string_view name = tensor.name;
    const bool is_in_layer = name.starts_with("model.layers.") || name.starts_with("blk.");
    if (!is_in_layer || name.ends_with(".rotary_emb.inv_freq")) return;
    if (is_zero_bias(source, tensor)) return;
    throw_error(ErrorKind::input,
                "{}: tensor '{}': expected no such tensor in {} with this config, found {} of {}; "
                "Keel would ignore the tensor and generate other text; check the config",
                source.file(tensor).path(),
                printable(tensor.stored_name.empty() ? tensor.name : tensor.stored_name),
                source.config().architecture->name, shape_text(tensor.shape), tensor.dtype_name);
}

} // namespace

std::vector<std::string> check_model_tensors(const ModelSource &source) {
    const ModelConfig &c = source.config();
    std::unordered_set<std::string> known;
    const auto expect = [&](const WeightParts &weight) {
        for (const WeightParts::Part &part : weight.parts) {
            if (weight.cols != 0) {
                source.expect(part.tensor, {part.rows, weight.cols});
            } else {
                source.expect(part.tensor, {part.rows});
            }
            known.insert(part.tensor);
        }
    };
    const ModelParts model = model_parts(c);
    expect(model.embedding);
    for (int64_t i = 0; i < c.layers; ++i) {
        const LayerParts layer = layer_parts(c, i);
        for (const WeightParts *weight : layer.all()) expect(*weight);
    }
    expect(model.final_norm);
    expect(model.output);
    // Only GGUF files have these tensors. Keel reads them together with the config.
    if (c.rope_scaling.kind != RopeScaling::Kind::none) {
        for (const char *name :
             {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
            known.insert(name);
    }
    std::vector<std::string> unused;
    for (const TensorInfo &tensor : source.tensors()) {
        if (known.contains(tensor.name)) continue;
        refuse_in_layer(source, tensor);
        unused.push_back(tensor.name);
    }
    return unused;
}

} // namespace keel
