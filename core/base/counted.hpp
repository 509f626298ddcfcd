#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace keel {

// "1 window", "7 windows", "0 windows": for nouns whose plural ends in s.
inline std::string counted(uint64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

} // namespace keel
