#pragma once

#include <keel/tensor.h>

#include <cstddef>
#include <cstdint>

namespace keel {

// Conversions between element types, portable and exact. The block types are those of GGML. The
// results are equal to those of GGML's reference quantizer, bit for bit. So files and numbers can
// be compared with those of other programs.

// Converts to IEEE 754 binary16. Rounds to nearest, ties to even. Keeps subnormals and infinities.
// A NaN becomes quiet and keeps its upper payload bits.
uint16_t f32_to_f16(float value);
float f16_to_f32(uint16_t bits);
// Returns the upper half of a binary32. Rounds to nearest, ties to even. A NaN stays a NaN.
uint16_t f32_to_bf16(float value);
float bf16_to_f32(uint16_t bits);

// Converts `count` elements to f32, from f32, f16, bf16, q8_0, q4_0, q4_k, q5_k or q6_k. Throws
// Error(internal) for other types. `src` can have any alignment. For block types, `count` must be a
// multiple of the block size.
void convert_to_f32(keel_dtype from, const void *src, float *dst, size_t count);

// Converts `count` f32 elements to f32, f16, bf16, q8_0 or q4_0. Throws Error(internal) for other
// types. Returns false if a block cannot hold its values (NaN, infinity, or a scale that f16 cannot
// hold). All values of that block then read as NaN. For f32, f16 and bf16 the result is always
// true.
bool convert_from_f32(keel_dtype to, const float *src, void *dst, size_t count);

} // namespace keel
