#pragma once

#include <keel/tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

class MappedFile;

// One tensor in a model file, row-major. shape[0] is the outermost dimension. A scalar has no
// dimensions.
struct TensorInfo {
    std::string name;
    // KEEL_DTYPE_NONE for a type with which Keel does not compute
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::string dtype_name;     // as the file spells it: "BF16"
    std::vector<int64_t> shape; // every dimension >= 0; the product fits in int64
    uint32_t file = 0;          // index of the file in its ModelSource
    uint64_t offset = 0;        // offset in bytes from the start of that file
    uint64_t bytes = 0;         // offset + bytes is inside the file
    std::string stored_name;    // name in the file; empty if it equals `name`
    // the number of a GGML type that Keel converts during loading (for example Q4_1; then dtype is
    // KEEL_DTYPE_NONE); 0 for all other types
    uint32_t packed = 0;
    // For q and k of some files: the number of heads whose rows are interleaved. 0: the rows are
    // not interleaved. Row 2 j + s of a stored head is row s * n / 2 + j of the head in the matrix
    // that `name` means. n is the number of rows of a head. GGUF stores Llama's q and k in this
    // order, for a RoPE that rotates neighbouring elements.
    int64_t interleaved_heads = 0;

    int64_t elements() const;
    // The number of values in a block of the stored type. A block is the smallest piece that can be
    // decoded.
    uint64_t block() const;
};

// A shape as text: "[2, 3]".
std::string shape_text(std::span<const int64_t> shape);

struct SafetensorsHeader {
    // in the order of their data; offsets count from the start of the file
    std::vector<TensorInfo> tensors;
    std::vector<std::pair<std::string, std::string>> metadata; // entries of "__metadata__"
};

// Reads and checks the header of a safetensors file, which is given as bytes. Every error begins
// with `name`. The header is not trusted: lengths and offsets must be inside the file, sizes must
// match shapes, data must not overlap.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view name);

// A mapped safetensors file with its header.
class SafetensorsFile {
  public:
    // Throws Error(input) that names the file and the place.
    explicit SafetensorsFile(const std::filesystem::path &path);

    const MappedFile &file() const { return *file_; }
    std::shared_ptr<const MappedFile> shared_file() const { return file_; }
    const std::vector<TensorInfo> &tensors() const { return header_.tensors; }
    const std::vector<std::pair<std::string, std::string>> &metadata() const {
        return header_.metadata;
    }
    // NULL if there is no such tensor. The time is linear in the number of tensors.
    const TensorInfo *find(std::string_view name) const;

  private:
    std::shared_ptr<const MappedFile> file_;
    SafetensorsHeader header_;
};

// The content of model.safetensors.index.json: the shard of each tensor.
struct ShardIndex {
    std::vector<std::string> files; // plain file names, ascending, without duplicates
    std::vector<std::pair<std::string, uint32_t>>
        tensors; // tensor name and index into `files`, ascending by name
};

// Parses an index. Throws Error(input) if a shard name is not a plain name of a *.safetensors file,
// so an index never refers to a file outside its folder.
ShardIndex parse_shard_index(std::string_view text, std::string_view name);

// The maximum size of an index in bytes.
inline constexpr uint64_t max_shard_index_bytes = uint64_t{32} << 20;

} // namespace keel
