#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace keel {

// Returns the number and the noun: "1 window", "7 windows", "0 windows". The noun must form its
// plural with s.
inline std::string counted(uint64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

} // namespace keel
