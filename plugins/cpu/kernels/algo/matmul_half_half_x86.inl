// Products of long rows of 16-bit weights with activations that are rounded to f16. A long row of x
// in f32 takes most of the L1 cache (22 of 32 KiB for 5632 columns). The weights that stream
// through the cache then evict the row. With x in f32, the weights of such rows were read at 29
// GB/s, and the weights of rows with 2048 columns at 34 GB/s. A row of x in f16 stays in the cache.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

constexpr uint32_t half_few_types =
    1u << static_cast<uint32_t>(WeightType::f16) | 1u << static_cast<uint32_t>(WeightType::bf16);
constexpr int64_t half_few_cols = 4096; // a row of x with this many columns has 16 KiB in f32
constexpr uint32_t half_many_types = 0;
constexpr auto matmul_half_half_many = nullptr;

static void round_half(WeightType, const float *x, int64_t n, int64_t padded, uint16_t *out,
                       float *scale) {
    round_f16(x, n, padded, out, scale);
}

static void matmul_half_half_few(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1) {
    if (t.w.type == WeightType::f16)
        dot_all<WeightType::f16, 6, uint16_t>(t, n0, n1, m0, m1);
    else
        dot_all<WeightType::bf16, 6, uint16_t>(t, n0, n1, m0, m1);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
