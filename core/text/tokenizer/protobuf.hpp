#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

// Reads the fields of an untrusted protobuf message. A nested message needs its own reader. Throws
// Error(input) "WHERE: ..." if the bytes are not a message.
class ProtobufReader {
  public:
    ProtobufReader(std::string_view message, std::string where)
        : rest_(message), where_(std::move(where)) {}

    // Moves to the next field. Returns false at the end.
    bool next();
    std::uint32_t field() const noexcept { return field_; }

    // Returns the value of the current field. Throws if the field has another wire type.
    std::uint64_t integer() const;
    bool flag() const { return integer() != 0; }
    float number() const;
    std::string_view bytes() const; // also returns the bytes of a nested message

    [[noreturn]] void fail(std::string_view message) const;

  private:
    std::uint64_t varint();
    std::string_view take(std::uint64_t size);

    std::string_view rest_;
    std::string where_;
    std::uint32_t field_ = 0;
    std::uint32_t wire_type_ = 0;
    std::uint64_t integer_ = 0;
    std::string_view bytes_;
};

} // namespace keel
