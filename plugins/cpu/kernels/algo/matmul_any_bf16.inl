// Loops of the bf16 products that use vectors. The file that includes this one must define x_rows,
// block_rows (rows of W per call), depth (columns unpacked at a time) and multiply_block().
#include "cpu/kernels/algo/pack_bf16.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

static_assert(block_rows % bf16_unit == 0);

// The arguments of multiply_block() for one range of at most `depth` columns.
struct Slab {
    const uint16_t *x; // row 0 of packed x, at the first column of the range
    int64_t x_stride; // elements from one block of x_rows rows to the next block
    int64_t tiles;     // number of tiles of 32 columns
    // true: this is the first range of columns. Sums begin with the bias, plus `out` if the task
    // accumulates. false: sums begin with `out`.
    bool first;
};

// Multiplies rows m0..m1-1 of x with rows n0..n1-1 of W, which are unpacked in `panels`.
static void multiply_block(const MatmulTask &t, const Slab &slab, int64_t n0, int64_t n1,
                           int64_t m0, int64_t m1, const uint16_t *panels);

// Returns the start values of the sums for columns n .. n + count - 1 of out. count is 1 to 16.
KEEL_SIMD F start_of(const MatmulTask &t, const Slab &slab, int64_t m, int64_t n, int64_t count) {
    F start = !slab.first || t.accumulate ? load_n(out_at(t, m, n), count) : zero();
    if (slab.first && t.bias != nullptr) start = add(start, load_n(t.bias + n, count));
    return start;
}

static void matmul_any_bf16(const MatmulTask &t, const uint16_t *x, int64_t n0, int64_t n1,
                            int64_t m0, int64_t m1, uint8_t *memory) {
    uint16_t *panels = reinterpret_cast<uint16_t *>(memory);
    const int64_t cols = t.w.cols;
    int64_t k0 = 0;
    do { // runs once even if there are no columns, because bias and zeros must be written
        const int64_t k = cols - k0 < depth ? cols - k0 : depth;
        for (int64_t n = n0; n < n1; n += 16)
            pack_panel(t, n, n1 - n < 16 ? n1 - n : 16, k0, k,
                       panels + (n - n0) / 16 * panel_stride);
        const Slab slab = {x + k0 * x_rows, (cols + 31) / 32 * 32 * x_rows, (k + 31) / 32, k0 == 0};
        multiply_block(t, slab, n0, n1, m0, m1, panels);
        k0 += k;
    } while (k0 < cols);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
