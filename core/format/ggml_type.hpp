#pragma once

#include <cstdint>
#include <string_view>

namespace keel {

// An element type of GGML as GGUF numbers it: how many values a block has and how many bytes it
// takes.
struct GgmlType {
    uint32_t id = 0;
    std::string_view name; // "Q4_K", as llama.cpp spells it
    uint32_t block = 1;    // values
    uint32_t bytes = 0;    // of a block
};

// Numbers of the types that Keel reads or writes.
namespace ggml {
inline constexpr uint32_t f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8,
                          q4_k = 12, q5_k = 13, q6_k = 14, bf16 = 30;
} // namespace ggml

// nullptr for a number that no type has (or no longer has). Static data.
const GgmlType *find_ggml_type(uint32_t id);

} // namespace keel
