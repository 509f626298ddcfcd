// GGML's reference quantizers for rows, for cast. The weights' fast paths do not use them.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// n is a multiple of 32; out as in GGML's files. A block with a NaN, an infinity or a scale beyond
// f16 gets a scale of NaN.
void quantize_q8_0(const float *x, int64_t n, uint8_t *out);
void quantize_q4_0(const float *x, int64_t n, uint8_t *out);

} // namespace keel_cpu
