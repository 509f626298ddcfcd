#pragma once

// Used only in core/model: GGUF's names, and the conversion of GGUF metadata to keys of a
// config.json.

#include "format/gguf.hpp"
#include "model/config.hpp"
#include "model/source.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace keel::gguf {

// The GGUF name of an architecture, and the differences between its tensors in a GGUF file and in a
// folder.
struct ArchitectureName {
    // value of "general.architecture"; GGUF keys of the architecture begin with it
    std::string_view name;
    std::string_view architecture; // name in a config.json
    bool interleaved;              // the rows of q and k have the order for a RoPE that rotates
                                   // neighbouring elements
    bool factor_norms;             // GGUF files store the factor of a norm, and folders store the
                                   // factor minus 1
};
// NULL if there is no architecture with this name.
const ArchitectureName *find_by_name(std::string_view gguf_name);
const ArchitectureName *find_by_architecture(std::string_view architecture);
std::string architecture_names(); // all names, "llama, qwen2, ...", for error messages

// Convert between the names of a folder and of GGUF: "model.layers.3.mlp.up_proj.weight" is
// "blk.3.ffn_up.weight" in GGUF. Both functions return other names unchanged.
std::string stored_tensor_name(const Architecture &architecture, std::string_view name);
std::string folder_tensor_name(const Architecture &architecture, std::string_view stored);
// The number of the expert in the folder's name of a tensor: 3 for
// "model.layers.0.mlp.experts.3.up_proj.weight". GGUF stores the matrices of all experts in one
// tensor, so the GGUF names of these tensors are equal.
std::optional<int64_t> expert_number(const Architecture &architecture, std::string_view name);

// The tensors with a factor for each frequency of RoPE: of Llama 3, and LongRoPE's factors. Folders
// have no such tensors.
inline constexpr std::string_view rope_factors_tensor = "rope_freqs.weight";
inline constexpr std::string_view long_factors_tensor = "rope_factors_long.weight";
inline constexpr std::string_view short_factors_tensor = "rope_factors_short.weight";

// Reads the config of a model from the metadata and tensors of a GGUF file. `files` are all parts
// of a split file, in order. The result is parsed by parse_model_config(), so all models get the
// same checks. Errors name the keys of the GGUF file.
ModelConfig read_config(std::span<const GgufFile> files);

// The factors of Llama 3's RoPE scaling, in the form of the tensor rope_factors_tensor: [rot / 2].
std::vector<float> llama3_factors(double theta, int64_t rot, const RopeScaling &scaling);

// Opens a GGUF file, or the first of several parts, as a model.
std::shared_ptr<const ModelSource> open_source(const std::filesystem::path &path);

} // namespace keel::gguf
