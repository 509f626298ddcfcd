#include "model/architectures.hpp"

#include "model/arch/arch.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace keel {
namespace {

constexpr std::array<const Architecture *, 22> table = {
    &arch::llama,     &arch::mistral, &arch::ministral, &arch::ministral3, &arch::qwen2,
    &arch::qwen3,     &arch::gemma,   &arch::gemma2,    &arch::gemma3,     &arch::smollm3,
    &arch::phi3,      &arch::olmo2,   &arch::olmo3,     &arch::granite,    &arch::glm,
    &arch::glm4,      &arch::cohere,  &arch::cohere2,   &arch::mixtral,    &arch::qwen2_moe,
    &arch::qwen3_moe, &arch::olmoe,
};

constexpr std::string_view experts =
    "its feed-forward network is a mixture of experts of a form that Keel does not compute";
constexpr std::string_view wrapper =
    "it wraps a text model together with one for images; take the text-only version of the model";

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> refused = {{
    {"GptOssForCausalLM", "it has MXFP4 experts with biases, and attention sinks"},
    {"GraniteMoeForCausalLM", experts},
    {"DeepseekV2ForCausalLM", experts},
    {"DeepseekV3ForCausalLM", experts},
    {"Gemma3ForConditionalGeneration", wrapper},
    {"Mistral3ForConditionalGeneration", wrapper},
    {"MllamaForConditionalGeneration", wrapper},
    {"Qwen2VLForConditionalGeneration", wrapper},
    {"Qwen2_5_VLForConditionalGeneration", wrapper},
}};

} // namespace

std::span<const Architecture *const> architectures() { return table; }

const Architecture *find_architecture(std::string_view name) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const Architecture *a) { return a->name == name; });
    return found == table.end() ? nullptr : *found;
}

std::string architecture_names() {
    std::string names;
    for (const Architecture *a : table) {
        if (!names.empty()) names += ", ";
        names += a->name;
    }
    return names;
}

std::string_view why_not_supported(std::string_view name) {
    const auto found = std::find_if(refused.begin(), refused.end(),
                                    [&](const auto &row) { return row.first == name; });
    return found == refused.end() ? std::string_view{} : found->second;
}

} // namespace keel
