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

// One tensor in a model file. Row-major, shape[0] outermost; a scalar has no dimensions.
struct TensorInfo {
    std::string name;
    keel_dtype dtype = KEEL_DTYPE_NONE; // NONE: a type that Keel can list but not compute with
    std::string dtype_name;             // as the file spells it, e.g. "BF16"
    std::vector<int64_t> shape;         // every dimension >= 0; the product fits in int64
    uint32_t file = 0;                  // index of the file in its ModelSource
    uint64_t offset = 0;                // bytes from the start of that file
    uint64_t bytes = 0;                 // offset + bytes lies inside the file
    std::string stored_name;            // in the file, where that differs from name
    uint32_t packed =
        0; // a GGML type that only loading can decode (Q4_1, ...; dtype is NONE then); 0: none is
    // > 0: the rows of q and k are so many heads whose halves interleave: row 2 j + s of a head is
    // row s * n / 2 + j of the matrix that name stands for, n the rows of a head. GGUF stores
    // Llama's so, for rotations of neighbours.
    int64_t interleaved_heads = 0;

    int64_t elements() const;
    // Values of the smallest piece that can be decoded alone.
    uint64_t block() const;
};

// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);

struct SafetensorsHeader {
    std::vector<TensorInfo> tensors; // in the order of their data; offsets are in the whole file
    std::vector<std::pair<std::string, std::string>> metadata; // "__metadata__"
};

// Reads and checks the header of a safetensors file given as bytes. `name` stands in front of every
// error. Nothing in the header is believed: lengths and offsets must lie inside the file, sizes
// must match shapes, data must not overlap.
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
    // nullptr if there is none. Linear in the number of tensors.
    const TensorInfo *find(std::string_view name) const;

  private:
    std::shared_ptr<const MappedFile> file_;
    SafetensorsHeader header_;
};

// What model.safetensors.index.json says: which shard holds which tensor.
struct ShardIndex {
    std::vector<std::string> files; // plain file names, ascending, each once
    std::vector<std::pair<std::string, uint32_t>>
        tensors; // tensor name, index into files; ascending by name
};

// Throws Error(input) for shard names that are no plain names of *.safetensors files: an index
// never leads out of its folder.
ShardIndex parse_shard_index(std::string_view text, std::string_view name);

// The most bytes that an index may have.
inline constexpr uint64_t max_shard_index_bytes = uint64_t{32} << 20;

} // namespace keel
