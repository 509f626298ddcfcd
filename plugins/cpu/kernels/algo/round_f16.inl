// Rounds activations to f16 for products with 16-bit weights.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Returns a power of two that scales the largest magnitude of x to between 2^14 and 2^15. f16 can
// hold this magnitude, and values that are up to 2^28 times smaller keep all their bits. Products
// can be large, because the sums are f32. With any scale, a NaN stays a NaN and an infinity stays
// an infinity.
KEEL_SIMD float scale_for_f16(const float *x, int64_t n) {
    F largest = zero();
    int64_t i = 0;
    for (; i + W <= n; i += W)
        largest = max(abs(load(x + i)), largest); // max() ignores a NaN in its first operand
    float most = reduce_max(largest);
    for (; i < n; ++i)
        most = __builtin_fabsf(x[i]) > most ? __builtin_fabsf(x[i]) : most;
    uint32_t bits;
    memcpy(&bits, &most, 4);
    const uint32_t exponent = bits >> 23;
    if (exponent == 0 || exponent == 255) return 1.0f;
    // with at least 1 here, the inverse of the scale is a normal number too
    bits = (exponent > 14 ? exponent - 14 : 1) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return scale;
}

// Rounds x so that x = scale * out. Writes n elements, then zeros up to `padded` elements.
KEEL_SIMD void round_f16(const float *x, int64_t n, int64_t padded, uint16_t *out, float *scale) {
    *scale = scale_for_f16(x, n);
    const float inverse = 1.0f / *scale;
    int64_t i = 0;
    for (; i + W <= n; i += W)
        store_f16(out + i, mul(load(x + i), set1(inverse)));
    for (; i < n; ++i)
        out[i] = f32_to_f16(x[i] * inverse);
    for (; i < padded; ++i)
        out[i] = 0;
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
