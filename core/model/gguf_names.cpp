#include "model/expert_tensors.hpp"
#include "model/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

namespace keel::gguf {
namespace {

// Several architectures may have the same GGUF name. Keel uses the first row of this table whose
// GGUF name is equal to the name in the file.
constexpr std::array table = {
    ArchitectureName{"llama", "LlamaForCausalLM", true, false},
    ArchitectureName{"llama", "MistralForCausalLM", true, false},
    ArchitectureName{"llama", "MinistralForCausalLM", true, false},
    ArchitectureName{"llama", "MixtralForCausalLM", true, false},
    ArchitectureName{"qwen2moe", "Qwen2MoeForCausalLM", false, false},
    ArchitectureName{"qwen3moe", "Qwen3MoeForCausalLM", false, false},
    ArchitectureName{"olmoe", "OlmoeForCausalLM", false, false},
    ArchitectureName{"qwen2", "Qwen2ForCausalLM", false, false},
    ArchitectureName{"qwen3", "Qwen3ForCausalLM", false, false},
    ArchitectureName{"gemma", "GemmaForCausalLM", false, true},
    ArchitectureName{"gemma2", "Gemma2ForCausalLM", false, true},
    ArchitectureName{"gemma3", "Gemma3ForCausalLM", false, true},
    ArchitectureName{"mistral3", "Ministral3ForCausalLM", true, false},
    ArchitectureName{"smollm3", "SmolLM3ForCausalLM", true, false},
    ArchitectureName{"phi3", "Phi3ForCausalLM", false, false},
    ArchitectureName{"olmo2", "Olmo2ForCausalLM", false, false},
    ArchitectureName{"olmo2", "Olmo3ForCausalLM", false, false},
    ArchitectureName{"granite", "GraniteForCausalLM", true, false},
    ArchitectureName{"glm4", "Glm4ForCausalLM", false, false},
    ArchitectureName{"command-r", "CohereForCausalLM", false, false},
    ArchitectureName{"cohere2", "Cohere2ForCausalLM", false, false},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> whole = {{
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
}};

// The parts of a layer: names in a folder, names in GGUF. GGUF has no name of its own for joined
// gate and up.
std::array<std::pair<std::string_view, std::string_view>, 14> layer_names(const LayerNames &n) {
    return {{{n.attention_norm, "attn_norm"},
             {n.qkv, "attn_qkv"},
             {n.q, "attn_q"},
             {n.k, "attn_k"},
             {n.v, "attn_v"},
             {n.q_norm, "attn_q_norm"},
             {n.k_norm, "attn_k_norm"},
             {n.attention_out, "attn_output"},
             {n.post_attention_norm, "post_attention_norm"},
             {n.ffn_norm, "ffn_norm"},
             {n.gate, "ffn_gate"},
             {n.gate_up.empty() ? n.up : n.gate_up, "ffn_up"},
             {n.down, "ffn_down"},
             {n.post_ffn_norm, "post_ffw_norm"}}};
}

// The parts of a layer with experts. The first four are those of all experts: names of stacked
// tensors in a folder, names in GGUF.
std::array<std::pair<std::string, std::string_view>, 9> expert_names(const LayerNames &n) {
    return {{{stacked_name(n, n.expert_gate), "ffn_gate_exps"},
             {stacked_name(n, n.expert_up), "ffn_up_exps"},
             {stacked_name(n, n.expert_down), "ffn_down_exps"},
             {std::string(stacked_gate_up), "ffn_gate_up_exps"},
             {std::string(n.router), "ffn_gate_inp"},
             {std::string(n.shared_router), "ffn_gate_inp_shexp"},
             {std::string(n.shared_gate), "ffn_gate_shexp"},
             {std::string(n.shared_up), "ffn_up_shexp"},
             {std::string(n.shared_down), "ffn_down_shexp"}}};
}

// The place of the number in "mlp.experts.3.up_proj": its begin and length. The length is 0 if the
// part of a layer is no matrix of an expert.
std::pair<size_t, size_t> number_place(const LayerNames &n, std::string_view part) {
    const size_t at = n.experts.size() + 1;
    if (n.router.empty() || !part.starts_with(n.experts) || part.size() <= at ||
        part[at - 1] != '.')
        return {};
    size_t end = at;
    while (end < part.size() && part[end] >= '0' && part[end] <= '9') ++end;
    return end < part.size() && part[end] == '.' ? std::pair{at, end - at}
                                                 : std::pair<size_t, size_t>{};
}

struct Layered {
    std::string_view number, part, suffix; // for example "3", "self_attn.q_proj", ".weight"
};

// Splits "PREFIX3.PART.weight" into its parts. `part` is empty if the name has another form.
Layered take_apart(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return {};
    name.remove_prefix(prefix.size());
    const size_t dot = name.find('.'), end = name.rfind('.');
    if (dot == std::string_view::npos || end <= dot) return {};
    return {name.substr(0, dot), name.substr(dot + 1, end - dot - 1), name.substr(end)};
}

} // namespace

const ArchitectureName *find_by_name(std::string_view gguf_name) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const auto &row) {
        return row.name == gguf_name && find_architecture(row.architecture) != nullptr;
    });
    return found == table.end() ? nullptr : &*found;
}

const ArchitectureName *find_by_architecture(std::string_view architecture) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const auto &row) {
        return row.architecture == architecture;
    });
    return found == table.end() ? nullptr : &*found;
}

std::string architecture_names() {
    std::string names;
    for (const ArchitectureName &row : table) {
        if (find_by_name(row.name) != &row) continue;
        names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    return names;
}

std::string stored_tensor_name(const Architecture &architecture, std::string_view name) {
    for (const auto &[folder, stored] : whole) {
        if (name == folder) return std::string(stored);
    }
    const Layered layered = take_apart(name, "model.layers.");
    if (layered.part.empty()) return std::string(name);
    for (const auto &[folder, stored] : layer_names(architecture.names)) {
        if (layered.part == folder)
            return fmt::format("blk.{}.{}{}", layered.number, stored, layered.suffix);
    }
    std::string part(layered.part);
    if (const auto [at, length] = number_place(architecture.names, part); length > 0)
        part.erase(at, length + 1);
    for (const auto &[folder, stored] : expert_names(architecture.names)) {
        if (!architecture.names.router.empty() && part == folder)
            return fmt::format("blk.{}.{}{}", layered.number, stored, layered.suffix);
    }
    return std::string(name);
}

std::string folder_tensor_name(const Architecture &architecture, std::string_view stored) {
    for (const auto &[folder, gguf] : whole) {
        if (stored == gguf) return std::string(folder);
    }
    const Layered layered = take_apart(stored, "blk.");
    if (layered.part.empty()) return std::string(stored);
    for (const auto &[folder, gguf] : layer_names(architecture.names)) {
        if (layered.part == gguf && !folder.empty())
            return fmt::format("model.layers.{}.{}{}", layered.number, folder, layered.suffix);
    }
    for (const auto &[folder, gguf] : expert_names(architecture.names)) {
        if (!architecture.names.router.empty() && layered.part == gguf)
            return fmt::format("model.layers.{}.{}{}", layered.number, folder, layered.suffix);
    }
    return std::string(stored);
}

std::optional<int64_t> expert_number(const Architecture &architecture, std::string_view name) {
    const Layered layered = take_apart(name, "model.layers.");
    const auto [at, length] = number_place(architecture.names, layered.part);
    int64_t number = 0;
    for (size_t i = at; i < at + length && length < 10; ++i)
        number = 10 * number + (layered.part[i] - '0');
    return length > 0 ? std::optional(number) : std::nullopt;
}

} // namespace keel::gguf
