#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace keel {

// A number and a noun whose plural ends in s: "1 window", "7 windows", "0 windows".
inline std::string counted(uint64_t n, std::string_view noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

} // namespace keel
