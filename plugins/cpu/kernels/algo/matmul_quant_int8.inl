// Products of interleaved quantized weights with activations that are rounded to 8 bits. This file
// has the rounding of activations and chooses the kernel for each weight type.
#include "cpu/kernels/algo/matmul_q4_q8_int8.inl"

#include "cpu/kernels/algo/matmul_k_int8.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

static void matmul_quant_int8(const MatmulTask &t, int64_t g0, int64_t g1, int64_t m0, int64_t m1) {
    if (is_k(t.w.type))
        matmul_k_int8(t, g0, g1, m0, m1);
    else if (t.w.type == WeightType::q4_0)
        q4_q8_groups<true>(t, g0, g1, m0, m1);
    else
        q4_q8_groups<false>(t, g0, g1, m0, m1);
}

// Rounds activations to 8 bits. A block with a NaN or an infinity gets a scale of NaN, so that
// every sum that uses the block is NaN.
static void quantize(const float *x, int64_t n, ActBlock *out) {
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
        F largest = zero(), spoilt = zero();
        for (int i = 0; i < 32; i += W) {
            const F v = load(x + i);
            largest = max(abs(v), largest);
            spoilt = fma(v, zero(), spoilt); // NaN if a value is NaN or infinite, otherwise zero
        }
        const float d = reduce_max(largest) * (1.0f / 127.0f), bad = reduce_add(spoilt);
        const float inverse = d > 0.0f ? 127.0f / reduce_max(largest) : 0.0f;
        if (bad == 0.0f && inverse <= 3.4e38f) {
            const int32_t sum = round_block(x, inverse, out[b].q);
            int32_t first = 0;
            for (int i = 0; i < 16; ++i)
                first += out[b].q[i];
            out[b].shift = 8 * sum;
            out[b].halves[0] = -32 * first;
            out[b].halves[1] = -32 * (sum - first);
            out[b].d = d;
        } else { // the scale is not finite, or is so small that its inverse is not finite
            memset(out[b].q, 0, 32);
            out[b].shift = out[b].halves[0] = out[b].halves[1] = 0;
            out[b].d = bad == 0.0f ? 0.0f : bad;
        }
    }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
