#pragma once

#include <cstdint>
#include <string_view>

namespace keel {

// An element type of GGML with its GGUF number. It has the number of values and of bytes in a
// block.
struct GgmlType {
    uint32_t id = 0;
    std::string_view name; // the name in llama.cpp: "Q4_K"
    uint32_t block = 1;    // values in a block
    uint32_t bytes = 0;    // bytes of a block
};

// GGUF numbers of the types that Keel reads or writes.
namespace ggml {
inline constexpr uint32_t f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8,
                          q4_k = 12, q5_k = 13, q6_k = 14, bf16 = 30;
} // namespace ggml

// Returns the type with this number, which is static data. Returns NULL if no type has this number,
// or if its type was removed from GGML.
const GgmlType *find_ggml_type(uint32_t id);

} // namespace keel
