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
    return std::string(stored);
}

} // namespace keel::gguf
