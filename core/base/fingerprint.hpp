#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace keel {

// A hash of 16 hex digits (FNV-1a, 64 bits), for names and keys. It gives no protection against an
// attacker who makes two texts with the same hash.
inline std::string fingerprint(std::string_view text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return fmt::format("{:016x}", hash);
}

} // namespace keel
