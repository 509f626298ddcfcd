#pragma once

#include <keel/tensor.h>

#include <cstddef>
#include <cstdint>

namespace keel {

// Conversions between element types, portable and exact. The block types are those of GGML and the
// results are equal to its reference quantizer's, bit for bit, so files and numbers can be compared
// with other programs'.

// IEEE 754 binary16: round to nearest, ties to even; subnormals, infinities and NaN (quiet, upper
// payload bits kept).
uint16_t f32_to_f16(float value);
float f16_to_f32(uint16_t bits);
// The upper half of a binary32: round to nearest, ties to even; a NaN stays one.
uint16_t f32_to_bf16(float value);
float bf16_to_f32(uint16_t bits);

// `count` elements of any of these types (f32, f16, bf16, q8_0, q4_0, q4_k, q5_k, q6_k) as f32. src
// may be unaligned. For block types count is a multiple of the block. Throws Error(internal) for
// other types.
void convert_to_f32(keel_dtype from, const void *src, float *dst, size_t count);

// `count` f32 elements as f32, f16, bf16, q8_0 or q4_0 (Error(internal) for others). Returns false
// if a block type met a value that it cannot hold (NaN, infinity, or a scale beyond f16); all of
// that block reads as NaN then. The plain types hold everything and return true.
bool convert_from_f32(keel_dtype to, const float *src, void *dst, size_t count);

} // namespace keel
