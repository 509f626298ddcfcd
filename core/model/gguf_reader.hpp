#pragma once

// Used only in core/model.

#include "model/gguf_model.hpp"

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace keel::gguf {

// Reads metadata and small tensors of a model in GGUF files, which are all parts of a split file.
class MetadataReader {
  public:
    // Throws Error(input) if the files are not a model of an architecture that Keel knows.
    explicit MetadataReader(std::span<const GgufFile> files);

    // The whole name of a key: "block_count" is "llama.block_count" in a file of a Llama.
    std::string key(std::string_view rest) const {
        return fmt::format("{}.{}", architecture_->name, rest);
    }
    // The value of a key as JSON. An array with one equal value for each layer becomes that value.
    // The key must exist; `name` is its whole name.
    nlohmann::json value(const std::string &name) const;
    // The value of a number. `from` is the rest of the key's name.
    double number_or(std::string_view from, double fallback) const;

    struct Found {
        const GgufFile *file = nullptr;
        const GgufTensor *tensor = nullptr; // NULL if there is none
    };
    Found find(std::string_view name) const;
    const GgufTensor *tensor(std::string_view name) const { return find(name).tensor; }
    // The number of rows of a matrix. nullopt if no matrix has this name.
    std::optional<int64_t> rows_of(std::string_view name) const;
    // The numbers of a tensor of F32 with one dimension. Throws Error(input) if there is none.
    std::vector<float> vector_of(std::string_view name) const;

    std::span<const GgufFile> files_;
    const GgufFile &file_; // the first file, which has the metadata
    const ArchitectureName *architecture_ = nullptr;
};

// The shortest decimal number that reads as this float. So 1e-05f becomes the 1e-05 of a
// config.json, not the double that is nearest to the float.
double as_written(float value);

// The object "rope_scaling" of a config.json, or null if RoPE has no scaling. `context`: the length
// for which the model was made. `names` gets the GGUF key of each key of the object.
nlohmann::json read_rope_scaling(const MetadataReader &in, int64_t context,
                                 std::map<std::string, std::string> &names);

} // namespace keel::gguf
