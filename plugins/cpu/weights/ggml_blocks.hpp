// GGML's reference quantizers for rows, used by the cast op. The fast paths for weights do not use
// them.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// n is a multiple of 32. `out` has GGML's file layout. A block with a NaN or an infinity, or whose
// scale exceeds f16, gets a scale of NaN.
void quantize_q8_0(const float *x, int64_t n, uint8_t *out);
void quantize_q4_0(const float *x, int64_t n, uint8_t *out);

} // namespace keel_cpu
