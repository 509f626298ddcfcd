#pragma once

#include "format/ggml_type.hpp"
#include "platform/mapped_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keel {

// Types of metadata values, as GGUF numbers them.
enum class GgufType : uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64
};

// "u32", "string", ...
std::string_view gguf_type_name(GgufType type);

// One key of the metadata. The value stands in the file; GgufFile's members read it.
struct GgufEntry {
    std::string_view key; // in the mapping
    GgufType type = GgufType::u8;
    GgufType element = GgufType::u8; // array: of its elements; elsewhere the same as type
    uint64_t count = 1;              // array: elements
    uint64_t offset =
        0; // of the value (array: of its first element), bytes from the start of the file
    uint64_t bytes = 0; // of the value
    bool is_array() const { return type == GgufType::array; }
};

// One tensor. Its data lie inside the file, aligned, and overlap no other tensor's.
struct GgufTensor {
    std::string name;
    const GgmlType *type = nullptr; // never null after parsing; static data
    std::vector<int64_t>
        shape; // row-major, shape[0] outermost: the reverse of the order in the file; each >= 1
    uint64_t offset = 0; // bytes from the start of the file
    uint64_t bytes = 0;
};

// A GGUF file (version 2 or 3, little-endian), mapped. Opening checks all of the header: counts,
// lengths, types, offsets, names that stand twice. Values are read on demand, without copies where
// they are text. Constant, so all members are safe from any thread; what they return that points
// somewhere is valid as long as this object (a moved-from object's too).
//
// Every member that reads a key: nullopt if there is no such key. Throws Error(input) "FILE:
// metadata key 'K': expected ..., found ..." if the value has another type or is out of range.
class GgufFile {
  public:
    // Throws Error(input) that names the file and the place.
    explicit GgufFile(const std::filesystem::path &path);
    // From bytes that the caller keeps; `name` stands in front of errors.
    GgufFile(std::span<const std::byte> bytes, std::string name);

    const std::string &name() const { return name_; }
    // nullptr if made from bytes.
    const std::shared_ptr<const MappedFile> &mapping() const { return mapping_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    uint32_t version() const { return version_; }
    uint64_t alignment() const { return alignment_; } // of tensor data, bytes, a power of two

    // In the order of the file.
    const std::vector<GgufEntry> &entries() const { return entries_; }
    const std::vector<GgufTensor> &tensors() const { return tensors_; }
    const GgufEntry *find(std::string_view key) const;
    bool has(std::string_view key) const { return find(key) != nullptr; }

    // Text is returned as it stands in the file; nobody checked that it is UTF-8.
    std::optional<std::string_view> text(std::string_view key) const;
    // Any integer type.
    std::optional<int64_t> integer(std::string_view key, int64_t low = INT64_MIN,
                                   int64_t high = INT64_MAX) const;
    // Any integer or floating-point type; must be finite.
    std::optional<double> number(std::string_view key, double low, double high) const;
    std::optional<bool> boolean(std::string_view key) const;
    // Arrays. More than `most` elements are an error.
    std::optional<std::vector<std::string_view>> texts(std::string_view key, uint64_t most) const;
    std::optional<std::vector<int64_t>> integers(std::string_view key, uint64_t most,
                                                 int64_t low = INT64_MIN,
                                                 int64_t high = INT64_MAX) const;
    // May hold NaN and infinities.
    std::optional<std::vector<float>> numbers(std::string_view key, uint64_t most) const;
    // Elements of an array; nullopt if there is no such key.
    std::optional<uint64_t> array_size(std::string_view key) const;

    // A value as messages show it: 32, "llama", an array of 4096 strings.
    std::string describe(const GgufEntry &entry) const;
    // Throws Error(input) "FILE: metadata key 'KEY': MESSAGE".
    [[noreturn]] void fail(std::string_view key, std::string_view message) const;
    // The value's bytes as they stand in the file (array: its elements): for copying a key.
    std::span<const std::byte> raw(const GgufEntry &entry) const;

  private:
    void parse();
    const GgufEntry *typed(std::string_view key, bool array, std::string_view expected) const;

    std::string name_;
    std::shared_ptr<const MappedFile> mapping_;
    std::span<const std::byte> bytes_;
    uint32_t version_ = 0;
    uint64_t alignment_ = 32;
    std::vector<GgufEntry> entries_;
    std::vector<GgufTensor> tensors_;
    std::unordered_map<std::string_view, size_t> by_key_; // keys point into the mapping
};

// Whether a file begins as GGUF files do. False for what cannot be read.
bool is_gguf_file(const std::filesystem::path &path);

} // namespace keel
