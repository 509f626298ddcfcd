#pragma once

#include "model/config.hpp"
#include "model/safetensors.hpp"
#include "platform/mapped_file.hpp"

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keel {

// Whether Keel computes with weights of this type: f32, f16, bf16 and the block types.
bool is_weight_dtype(keel_dtype type);

// Where a model's tensors come from: mapped files, the tensors in them, and the model's shape. Every format's reader
// ends in one of these. Owns the mappings; the content is constant, so reading is safe from any thread.
class ModelSource {
  public:
    struct Parts {
        std::string path; // as the user gave it, for messages
        ModelConfig config;
        std::vector<std::shared_ptr<const MappedFile>> files;
        std::vector<TensorInfo> tensors; // TensorInfo::file is an index into files
    };

    // Throws Error(input) if two tensors have the same name.
    explicit ModelSource(Parts parts);

    const std::string &path() const { return parts_.path; }
    const ModelConfig &config() const { return parts_.config; }
    // By file, then by place in the file: reading in this order reads the disk in order.
    const std::vector<TensorInfo> &tensors() const { return parts_.tensors; }
    size_t file_count() const { return parts_.files.size(); }
    const MappedFile &file(const TensorInfo &tensor) const { return *parts_.files[tensor.file]; }
    const MappedFile &file(size_t index) const { return *parts_.files.at(index); }
    // Bytes of all tensors' data.
    uint64_t total_bytes() const { return total_bytes_; }

    // The tensor's data in the mapping; valid as long as this object. It may be unaligned, see TensorInfo::aligned().
    std::span<const std::byte> bytes(const TensorInfo &tensor) const;

    // nullptr if there is none.
    const TensorInfo *find(std::string_view name) const;

    // The tensor with that name, which must have that shape and a type that Keel computes with (F32, F16, BF16, or a
    // block type). Throws Error(input) that names file, tensor, what was expected and what was found.
    const TensorInfo &expect(std::string_view name, std::span<const int64_t> shape) const;
    const TensorInfo &expect(std::string_view name, std::initializer_list<int64_t> shape) const {
        return expect(name, std::span<const int64_t>(shape.begin(), shape.size()));
    }

    // To be called when a tensor's bytes have been consumed: gives their pages back to the system.
    void drop(const TensorInfo &tensor) const { file(tensor).drop(tensor.offset, tensor.bytes); }

  private:
    Parts parts_;
    std::unordered_map<std::string_view, size_t> by_name_; // keys point into parts_.tensors
    uint64_t total_bytes_ = 0;
};

// Opens a Hugging Face folder: config.json, and model.safetensors or the shards that model.safetensors.index.json lists.
// Maps the files and checks every header; reads no weights. Throws Error(input) that says what is missing and the cure.
std::shared_ptr<const ModelSource> open_model_source(const std::filesystem::path &path);

} // namespace keel
