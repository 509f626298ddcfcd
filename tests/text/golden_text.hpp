// Reads the golden files of the tokenizer tests.
#pragma once

#include <catch2/catch.hpp>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

inline std::string read_text(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE(in);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

// Returns token ids that are written as two characters of base 64 each.
inline std::vector<std::int32_t> unpack(std::string_view packed) {
    static const std::string digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i + 1 < packed.size(); i += 2)
        ids.push_back(
            static_cast<std::int32_t>(digits.find(packed[i]) * 64 + digits.find(packed[i + 1])));
    return ids;
}
