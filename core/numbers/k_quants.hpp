#pragma once

#include <keel/tensor.h>

#include <cstddef>

namespace keel {

// Converts `count` values of q4_k, q5_k or q6_k to f32, for convert_to_f32(). `count` is a multiple
// of 256, the block size. The results are equal to GGML's, bit for bit. `src` can have any
// alignment. The bytes of `src` are not trusted: every bit pattern has a value (scales can be NaN).
void dequantize_k(keel_dtype from, const std::byte *src, float *dst, size_t count);

} // namespace keel
