#pragma once

#include <keel/tensor.h>

#include <cstddef>

namespace keel {

// `count` values, whole blocks of 256, of q4_k, q5_k or q6_k as f32, equal to GGML's bit for bit.
// src may be unaligned; what it holds is not trusted and every pattern of bits has a value (scales
// may be NaN). For convert_to_f32().
void dequantize_k(keel_dtype from, const std::byte *src, float *dst, size_t count);

} // namespace keel
