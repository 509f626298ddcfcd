#pragma once

// Internal to core/model: what GGUF calls things, and what its metadata say in the words of a
// config.json.

#include "format/gguf.hpp"
#include "model/config.hpp"
#include "model/source.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace keel::gguf {

// An architecture as GGUF names it.
struct ArchitectureName {
    std::string_view name;         // "general.architecture", in front of its keys
    std::string_view architecture; // as in config.json
    bool interleaved;  // the rows of q and k are in the order of rotations of neighbours
    bool factor_norms; // norms are stored as factors, where folders hold factor - 1
};
// nullptr if none has it.
const ArchitectureName *find_by_name(std::string_view gguf_name);
const ArchitectureName *find_by_architecture(std::string_view architecture);
std::string architecture_names(); // "llama, qwen2, ...": for errors

// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight". Both return the name as it is if it
// is none of the model's.
std::string stored_tensor_name(const Architecture &architecture, std::string_view name);
std::string folder_tensor_name(const Architecture &architecture, std::string_view stored);

// The tensor of per-frequency factors that extend RoPE, which no folder has.
inline constexpr std::string_view rope_factors_tensor = "rope_freqs.weight";

// The model that a file's metadata and tensors describe; `files` are all parts of a split one, in
// order. It goes through parse_model_config(), so that one place decides what a sane model is;
// errors name the file's keys.
ModelConfig read_config(std::span<const GgufFile> files);

// The factors of Llama 3's RoPE scaling, as rope_factors_tensor holds them: [rot / 2].
std::vector<float> llama3_factors(double theta, int64_t rot, const RopeScaling &scaling);

// A GGUF file, or the first of several, as a model.
std::shared_ptr<const ModelSource> open_source(const std::filesystem::path &path);

} // namespace keel::gguf
