#pragma once

#include "format/gguf.hpp"
#include "platform/new_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Writes a GGUF file, version 3. The caller first adds the metadata and the tensors. begin() writes
// the metadata and the list of tensors. After begin(), the caller writes the data of the tensors,
// in the order of the list. The content goes to a temporary file in the target's folder. finish()
// replaces the target by the temporary file. So no reader sees an incomplete file, and an old
// target stays until finish(). Without finish() the temporary file is removed. All members throw
// Error(runtime) if the system reports an error. begin() throws Error(input) if no file can be made
// at the target.
class GgufWriter {
  public:
    explicit GgufWriter(std::filesystem::path target);
    ~GgufWriter();
    GgufWriter(const GgufWriter &) = delete;
    GgufWriter &operator=(const GgufWriter &) = delete;

    void add(std::string_view key, std::string_view text);
    void add(std::string_view key, const char *text) { add(key, std::string_view(text)); }
    void add(std::string_view key, uint32_t value);
    void add(std::string_view key, float value);
    void add(std::string_view key, bool value);
    void add(std::string_view key, std::span<const std::string> texts);
    void add(std::string_view key, std::span<const int32_t> values);
    void add(std::string_view key, std::span<const float> values);
    // Copies an entry of another file without a change.
    void copy(const GgufFile &from, const GgufEntry &entry);

    // Adds a tensor to the list. find_ggml_type() must know `type`. shape[0] is the outermost
    // dimension.
    void add_tensor(std::string_view name, uint32_t type, std::span<const int64_t> shape);

    // The size in bytes of the file after finish().
    uint64_t file_bytes() const;
    // Writes the metadata and the list of tensors.
    void begin();
    // Writes the next tensor's data, in pieces of any size. When all bytes of a tensor are written,
    // the next tensor begins.
    void write(std::span<const std::byte> data);
    void finish();

  private:
    struct Declared {
        std::string name;
        uint64_t bytes = 0;
    };
    void key(std::string_view key, GgufType type);
    void array(std::string_view key, GgufType element, uint64_t count);
    void put(const void *data, uint64_t bytes);
    uint64_t header_bytes() const;
    void pad(uint64_t bytes);

    std::filesystem::path target_;
    std::optional<NewFile> out_;
    std::string metadata_, infos_;
    uint64_t keys_ = 0;
    std::vector<Declared> tensors_;
    uint64_t data_bytes_ = 0; // size of the data of all tensors, with padding
    size_t next_ = 0;         // the tensor whose data is written next
    uint64_t written_ = 0;    // bytes of that tensor that are written
};

} // namespace keel
