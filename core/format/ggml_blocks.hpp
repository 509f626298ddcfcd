#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// Whether decode_ggml_blocks() knows the type: Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.
bool can_decode_ggml(uint32_t type);

// `count` values, whole blocks of such a type, as f32. src may be unaligned; what it holds is not
// trusted and every pattern of bits has a value (scales may be NaN). The results are equal to
// GGML's, bit for bit. Throws Error(internal) for other types.
void decode_ggml_blocks(uint32_t type, const void *src, float *dst, size_t count);

} // namespace keel
