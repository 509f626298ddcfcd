#pragma once

#include "model/config.hpp"
#include "model/safetensors.hpp"
#include "numbers/quantize.hpp"
#include "platform/mapped_file.hpp"

#include <filesystem>
#include <functional>
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

// Which dtypes a device takes weights in, beside those that all take: keel_ctx_info.weight_dtypes.
// This one takes all that Keel knows; for questions that no device is asked for.
inline constexpr uint64_t all_weight_dtypes = ~uint64_t{0};

// The type that a matrix is loaded in: `asked`; or, with NONE, the stored one where the device
// takes it, q8_0 else.
keel_dtype loaded_dtype(const TensorInfo &tensor, keel_dtype asked, uint64_t weight_dtypes);

// Bytes of a tensor when loaded with matrices in their loaded_dtype().
uint64_t loaded_bytes(const TensorInfo &tensor, keel_dtype asked, uint64_t weight_dtypes);

// What loading has to convert because the device does not compute with the stored type.
struct Conversion {
    std::string from; // "Q4_K"
    keel_dtype to = KEEL_DTYPE_NONE;
    uint64_t tensors = 0;
    uint64_t stored_bytes = 0, loaded_bytes = 0;
};
// "12 Q4_K tensors are converted to q8_0: 20.0 MiB become 37.8 MiB"
std::string conversion_text(const Conversion &conversion);

// Where a model's tensors come from: mapped files, the tensors in them, and the model's shape.
// Every format's reader ends in one of these. Owns the mappings; the content is constant, so
// reading is safe from any thread.
class ModelSource {
  public:
    struct Parts {
        std::string path; // as the user gave it, for messages
        ModelConfig config;
        std::vector<std::shared_ptr<const MappedFile>> files;
        std::vector<TensorInfo> tensors;         // TensorInfo::file is an index into files
        std::string config_name = "config.json"; // who says what tensors there are, for messages
        // How the files call a tensor that has this name here, for messages; empty: the same.
        std::function<std::string(std::string_view)> stored_name;
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

    // The tensor's data in the mapping; valid as long as this object. It may begin at any address.
    std::span<const std::byte> bytes(const TensorInfo &tensor) const;

    // nullptr if there is none.
    const TensorInfo *find(std::string_view name) const;

    // The tensor with that name, which must have that shape and a type that Keel computes with
    // (F32, F16, BF16, or a block type). Throws Error(input) that names file, tensor, what was
    // expected and what was found.
    const TensorInfo &expect(std::string_view name, std::span<const int64_t> shape) const;
    const TensorInfo &expect(std::string_view name, std::initializer_list<int64_t> shape) const {
        return expect(name, std::span<const int64_t>(shape.begin(), shape.size()));
    }

    // Values first .. first + count of a tensor in the order of the file, as f32; both are
    // multiples of its block(). Throws Error(input) if its type is none that Keel knows.
    void read(const TensorInfo &tensor, uint64_t first, uint64_t count, float *out) const;
    // All values of a vector, rows in the order that its name stands for.
    void read_vector(const TensorInfo &tensor, float *out) const;
    // Whether a matrix can be used as `dtype` where it lies in its mapping.
    bool in_place(const TensorInfo &tensor, keel_dtype dtype) const;
    // A matrix as `dtype`, rows in the order that its name stands for, into loaded_bytes(). Throws
    // Error(input) as convert_rows().
    void convert(const TensorInfo &tensor, keel_dtype dtype, void *out,
                 const ParallelFor &parallel = {}) const;
    // What loading as `dtype` (NONE: as stored) converts of what not every device computes with; by
    // stored type.
    std::vector<Conversion> conversions(keel_dtype dtype, uint64_t weight_dtypes) const;

    // To be called when a tensor's bytes have been consumed: gives their pages back to the system.
    void drop(const TensorInfo &tensor) const { file(tensor).drop(tensor.offset, tensor.bytes); }

  private:
    Parts parts_;
    std::unordered_map<std::string_view, size_t> by_name_; // keys point into parts_.tensors
    uint64_t total_bytes_ = 0;
};

// Opens a Hugging Face folder (config.json, and model.safetensors or the shards that
// model.safetensors.index.json lists) or a GGUF file (also the first of several,
// NAME-00001-of-00003.gguf). Maps the files and checks every header; reads no weights. Throws
// Error(input) that says what is missing and the cure.
std::shared_ptr<const ModelSource> open_model_source(const std::filesystem::path &path);

} // namespace keel
