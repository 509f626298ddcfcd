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

// Types of metadata values, with the numbers of GGUF.
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

// Returns the name of a type: "u32", "string", ...
std::string_view gguf_type_name(GgufType type);

// One key of the metadata. The value is in the file; members of GgufFile read it.
struct GgufEntry {
    std::string_view key; // points into the mapping
    GgufType type = GgufType::u8;
    GgufType element = GgufType::u8; // for an array: type of its elements; else equal to `type`
    uint64_t count = 1;              // for an array: number of elements
    uint64_t offset =
        0; // offset of the value (array: of its first element) in bytes from the start of the file
    uint64_t bytes = 0; // size of the value
    bool is_array() const { return type == GgufType::array; }
};

// One tensor. Its data is inside the file, is aligned, and does not overlap other tensors.
struct GgufTensor {
    std::string name;
    const GgmlType *type = nullptr; // not NULL after parsing; points to static data
    // row-major, each >= 1; shape[0] is the outermost dimension (the file has the reverse order)
    std::vector<int64_t> shape;
    uint64_t offset = 0; // offset of the data in bytes from the start of the file
    uint64_t bytes = 0;
};

// A mapped GGUF file (version 2 or 3, little-endian). Opening the file checks the whole header:
// counts, lengths, types, offsets, and repeated names. A value is read only when a member function
// needs it. Text is not copied. The object is constant, so any thread may call all members. Results
// that point into the file are valid while this object lives. A move of the object does not change
// this.
//
// Members that read a key return nullopt if there is no such key. They throw Error(input) "FILE:
// metadata key 'K': expected ..., found ..." if the value has another type or is out of range.
class GgufFile {
  public:
    // Throws Error(input) that names the file and the place.
    explicit GgufFile(const std::filesystem::path &path);
    // Reads a file from bytes that the caller keeps. Errors begin with `name`.
    GgufFile(std::span<const std::byte> bytes, std::string name);

    const std::string &name() const { return name_; }
    // NULL if the object was made from bytes.
    const std::shared_ptr<const MappedFile> &mapping() const { return mapping_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    uint32_t version() const { return version_; }
    // alignment of tensor data in bytes, a power of two
    uint64_t alignment() const { return alignment_; }

    // The entries of the metadata, in the order of the file.
    const std::vector<GgufEntry> &entries() const { return entries_; }
    const std::vector<GgufTensor> &tensors() const { return tensors_; }
    const GgufEntry *find(std::string_view key) const;
    bool has(std::string_view key) const { return find(key) != nullptr; }

    // Returns a text as the file has it. The text may be invalid UTF-8.
    std::optional<std::string_view> text(std::string_view key) const;
    // Returns a value of any integer type.
    std::optional<int64_t> integer(std::string_view key, int64_t low = INT64_MIN,
                                   int64_t high = INT64_MAX) const;
    // Returns a value of any integer or floating-point type. The value must be finite.
    std::optional<double> number(std::string_view key, double low, double high) const;
    std::optional<bool> boolean(std::string_view key) const;
    // The next functions are for arrays. An array with more than `most` elements is an error.
    std::optional<std::vector<std::string_view>> texts(std::string_view key, uint64_t most) const;
    std::optional<std::vector<int64_t>> integers(std::string_view key, uint64_t most,
                                                 int64_t low = INT64_MIN,
                                                 int64_t high = INT64_MAX) const;
    std::optional<std::vector<bool>> booleans(std::string_view key, uint64_t most) const;
    // The numbers can be NaN or infinite.
    std::optional<std::vector<float>> numbers(std::string_view key, uint64_t most) const;
    // Returns the number of elements of an array, or nullopt if there is no such key.
    std::optional<uint64_t> array_size(std::string_view key) const;

    // Describes a value for messages: 32, "llama", an array of 4096 strings.
    std::string describe(const GgufEntry &entry) const;
    // Throws Error(input) "FILE: metadata key 'KEY': MESSAGE".
    [[noreturn]] void fail(std::string_view key, std::string_view message) const;
    // Returns the bytes of a value in the file, for copying a key. For an array: the bytes of its
    // elements.
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

// Returns true if a file begins like a GGUF file. Returns false if not, or if the file cannot be
// read.
bool is_gguf_file(const std::filesystem::path &path);

} // namespace keel
