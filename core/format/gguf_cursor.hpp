#pragma once

// Used only in core/format: reads a GGUF file byte by byte.

#include "base/display.hpp"
#include "base/error.hpp"
#include "format/gguf.hpp"

#include <cstring>

namespace keel {

// Returns the size of a value in bytes, or 0 if the type has no fixed size.
uint32_t gguf_type_bytes(GgufType type);
// Returns true if a type has this number.
bool is_gguf_type(uint32_t number);

template <typename T> T load_value(const std::byte *p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
}

// Moves through the file. Throws if a read would go beyond the end of the file. `what` is the name
// of the value in errors.
class GgufCursor {
  public:
    GgufCursor(std::span<const std::byte> file, uint64_t at, std::string_view name)
        : file_(file), at_(at), name_(name) {}

    uint64_t at() const { return at_; }
    uint64_t left() const { return file_.size() - at_; }

    const std::byte *take(uint64_t bytes, std::string_view what) {
        if (bytes > left()) {
            throw_error(ErrorKind::input,
                        "{}: {}: expected {} bytes at offset {}, found only {}; the file is cut "
                        "short or damaged",
                        name_, what, bytes, at_, left());
        }
        const std::byte *p = file_.data() + at_;
        at_ += bytes;
        return p;
    }
    template <typename T> T number(std::string_view what) {
        return load_value<T>(take(sizeof(T), what));
    }
    std::string_view text(uint64_t most, std::string_view what) {
        const auto length = number<uint64_t>(what);
        if (length > most && length <= left()) {
            throw_error(ErrorKind::input, "{}: {}: expected at most {} bytes of text, found {}",
                        name_, what, most, length);
        }
        return {reinterpret_cast<const char *>(take(length, what)), static_cast<size_t>(length)};
    }

  private:
    std::span<const std::byte> file_;
    uint64_t at_;
    std::string_view name_;
};

} // namespace keel
