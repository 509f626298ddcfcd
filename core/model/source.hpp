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

// Returns true if Keel computes with weights of this type: f32, f16, bf16 and the block types.
bool is_weight_dtype(keel_dtype type);

// A value of keel_ctx_info.weight_dtypes: the dtypes in which a device takes weights, in addition
// to those that all devices take. This constant has all dtypes of Keel. Use it if there is no
// device.
inline constexpr uint64_t all_weight_dtypes = ~uint64_t{0};

// Returns the type in which a matrix is loaded. It is `asked`, unless `asked` is KEEL_DTYPE_NONE.
// Then it is the stored type if the device takes this type, and otherwise q8_0.
keel_dtype loaded_dtype(const TensorInfo &tensor, keel_dtype asked, uint64_t weight_dtypes);

// Bytes of a tensor after loading. Matrices have their loaded_dtype().
uint64_t loaded_bytes(const TensorInfo &tensor, keel_dtype asked, uint64_t weight_dtypes);

// A conversion that loading makes because the device does not compute with the stored type.
struct Conversion {
    std::string from; // stored type: "Q4_K"
    keel_dtype to = KEEL_DTYPE_NONE;
    uint64_t tensors = 0;
    uint64_t stored_bytes = 0, loaded_bytes = 0;
};
// Describes a conversion for users: "12 Q4_K tensors are converted to q8_0: 20.0 MiB become 37.8
// MiB".
std::string conversion_text(const Conversion &conversion);

// A model's tensors and its config: the mapped files, the tensors in them, and the model's shape.
// The readers of all formats return a ModelSource. It owns the mappings. Its content is constant,
// so any thread may read.
class ModelSource {
  public:
    struct Parts {
        std::string path; // as the user gave it, for messages
        ModelConfig config;
        std::vector<std::shared_ptr<const MappedFile>> files;
        std::vector<TensorInfo> tensors; // TensorInfo::file is an index into files
        // name of the file that lists the required tensors, for messages
        std::string config_name = "config.json";
        // Returns the name of a tensor in the files, for messages. Empty: the names are equal.
        std::function<std::string(std::string_view)> stored_name;
    };

    // Throws Error(input) if two tensors have the same name.
    explicit ModelSource(Parts parts);

    const std::string &path() const { return parts_.path; }
    const ModelConfig &config() const { return parts_.config; }
    // Sorted by file, then by place in the file, so reading the tensors in this order reads the
    // disk sequentially.
    const std::vector<TensorInfo> &tensors() const { return parts_.tensors; }
    size_t file_count() const { return parts_.files.size(); }
    const MappedFile &file(const TensorInfo &tensor) const { return *parts_.files[tensor.file]; }
    const MappedFile &file(size_t index) const { return *parts_.files.at(index); }
    // Bytes of the data of all tensors.
    uint64_t total_bytes() const { return total_bytes_; }

    // The tensor's data in the mapping. Valid while this object lives. It may be unaligned.
    std::span<const std::byte> bytes(const TensorInfo &tensor) const;

    // NULL if there is no such tensor.
    const TensorInfo *find(std::string_view name) const;

    // Returns the tensor `name`. It must have this shape and a type with which Keel computes (F32,
    // F16, BF16, or a block type). Otherwise throws Error(input) that names the file, the tensor,
    // the expected value and the found value.
    const TensorInfo &expect(std::string_view name, std::span<const int64_t> shape) const;
    const TensorInfo &expect(std::string_view name, std::initializer_list<int64_t> shape) const {
        return expect(name, std::span<const int64_t>(shape.begin(), shape.size()));
    }

    // Writes the values first .. first + count of a tensor to `out` as f32, in the order of the
    // file. `first` and `count` are multiples of its block(). Throws Error(input) if Keel does not
    // know the type.
    void read(const TensorInfo &tensor, uint64_t first, uint64_t count, float *out) const;
    // Writes all values of a vector to `out`, in the order that the model needs. The file may have
    // another order (TensorInfo::interleaved_heads).
    void read_vector(const TensorInfo &tensor, float *out) const;
    // Returns true if a matrix can be used in the type `dtype` directly in its mapping, without a
    // copy.
    bool in_place(const TensorInfo &tensor, keel_dtype dtype) const;
    // Converts a matrix to `dtype` and writes loaded_bytes() to `out`. The rows are in the order
    // that the model needs. The file may have another order (TensorInfo::interleaved_heads). Throws
    // Error(input) as convert_rows() does.
    void convert(const TensorInfo &tensor, keel_dtype dtype, void *out,
                 const ParallelFor &parallel = {}) const;
    // The conversions that loading in the type `dtype` makes (KEEL_DTYPE_NONE: the stored type),
    // for types with which not every device computes. There is one entry for each stored type.
    std::vector<Conversion> conversions(keel_dtype dtype, uint64_t weight_dtypes) const;

    // Returns the pages of a tensor's bytes to the system. Call it when the bytes are no longer
    // needed.
    void drop(const TensorInfo &tensor) const { file(tensor).drop(tensor.offset, tensor.bytes); }

  private:
    Parts parts_;
    std::unordered_map<std::string_view, size_t> by_name_; // keys point into parts_.tensors
    uint64_t total_bytes_ = 0;
};

// Opens a Hugging Face folder or a GGUF file. A folder has config.json, and model.safetensors or
// the shards that model.safetensors.index.json lists. A GGUF file may be the first of several
// (NAME-00001-of-00003.gguf). Maps the files and checks every header. Reads no weights. Throws
// Error(input) that says what is missing and what to do.
std::shared_ptr<const ModelSource> open_model_source(const std::filesystem::path &path);

} // namespace keel
