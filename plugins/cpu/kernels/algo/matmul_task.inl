// What kernels of all types do with a MatmulTask: where rows of x lie and a result goes, and asking
// for weights ahead of reading them.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

KEEL_SIMD const float *x_at(const MatmulTask &t, int64_t m) {
    return reinterpret_cast<const float *>(reinterpret_cast<const uint8_t *>(t.x) + m * t.x_stride);
}

KEEL_SIMD float *out_at(const MatmulTask &t, int64_t m, int64_t n) {
    return reinterpret_cast<float *>(reinterpret_cast<uint8_t *>(t.out) + m * t.out_stride) + n;
}

constexpr int64_t prefetch_bytes = 2048; // 1024: f16 decodes 6% slower; 4096: q4_0 a fifth

// Asks for `bytes` of a stream of which p is read now.
KEEL_SIMD void prefetch_ahead(const MatmulTask &t, const uint8_t *p, int64_t bytes) {
    if (!t.prefetch) return;
    for (int64_t line = 0; line < bytes; line += 64)
        prefetch(p + prefetch_bytes + line);
}

// Where a line must be asked for while N neighbouring rows of row_bytes are read together, all of
// them at byte `at`: as far ahead in all as in a single stream, and behind a row's end in the row
// that is N further on (further still where rows of two sources alternate).
template <int N>
KEEL_SIMD int64_t ahead_in_rows(int64_t at, int64_t row_bytes) {
    const int64_t to = at + prefetch_bytes / N;
    return to < row_bytes ? to : to + (N - 1) * row_bytes;
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
