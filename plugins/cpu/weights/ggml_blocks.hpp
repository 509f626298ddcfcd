// Functions that quantize rows exactly like GGML's reference code. Only the cast op uses them.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// Both functions quantize n values. n is a multiple of 32. `out` gets the layout of a GGML file. If
// a block has a NaN or an infinity, or if its scale does not fit f16, the stored scale is NaN.
void quantize_q8_0(const float *x, int64_t n, uint8_t *out);
void quantize_q4_0(const float *x, int64_t n, uint8_t *out);

} // namespace keel_cpu
