#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// Returns true if decode_ggml_blocks() supports the type: Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.
bool can_decode_ggml(uint32_t type);

// Converts `count` values of a supported type to f32. `count` must be a multiple of the block size.
// The results are equal to GGML's, bit for bit. `src` can have any alignment. The bytes of `src`
// are not trusted: every bit pattern has a value (scales can be NaN). Throws Error(internal) for
// other types.
void decode_ggml_blocks(uint32_t type, const void *src, float *dst, size_t count);

} // namespace keel
