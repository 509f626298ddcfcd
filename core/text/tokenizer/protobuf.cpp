#include "text/tokenizer/protobuf.hpp"

#include "base/error.hpp"

#include <bit>

namespace keel {

namespace {

enum WireType : std::uint32_t {
    varint_type = 0,
    fixed64_type = 1,
    bytes_type = 2,
    fixed32_type = 5
};

} // namespace

void ProtobufReader::fail(std::string_view message) const {
    throw_error(ErrorKind::input, "{}: {}", where_, message);
}

std::string_view ProtobufReader::take(std::uint64_t size) {
    if (size > rest_.size())
        fail(fmt::format(
            "field {} has {} bytes, but only {} bytes follow; the file is cut short or damaged",
            field_, size, rest_.size()));
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(taken.size());
    return taken;
}

std::uint64_t ProtobufReader::varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const auto byte = static_cast<unsigned char>(take(1).front());
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
    fail("a number has more than 64 bits; this is not a protobuf message");
}

bool ProtobufReader::next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field_ = static_cast<std::uint32_t>(tag >> 3);
    wire_type_ = static_cast<std::uint32_t>(tag & 7);
    if (tag >> 32 != 0 || field_ == 0)
        fail("the number of a field is not valid; this is not a protobuf message");
    switch (wire_type_) {
    case varint_type: integer_ = varint(); return true;
    case fixed64_type: bytes_ = take(8); return true;
    case bytes_type: bytes_ = take(varint()); return true;
    case fixed32_type: bytes_ = take(4); return true;
    default:
        fail(fmt::format("field {} has wire type {}; this is not a protobuf message", field_,
                         wire_type_));
    }
}

std::uint64_t ProtobufReader::integer() const {
    if (wire_type_ != varint_type) fail(fmt::format("field {} is not an integer", field_));
    return integer_;
}

float ProtobufReader::number() const {
    if (wire_type_ != fixed32_type) fail(fmt::format("field {} is not a 32-bit number", field_));
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < 4; ++i)
        bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
    return std::bit_cast<float>(bits);
}

std::string_view ProtobufReader::bytes() const {
    if (wire_type_ != bytes_type) fail(fmt::format("field {} is not text or a message", field_));
    return bytes_;
}

} // namespace keel
