#include "eval/compare/op_bounds.hpp"

#include <algorithm>

namespace keel {
namespace {

// The bounds for all dtypes. Errors are relative to the largest value of the row.
struct Coarseness {
    keel_dtype dtype;
    // Of a stored value: a whole step, because nearly equal inputs may be rounded to different
    // sides.
    double rounding;
    // Of dot products with values in this dtype, if the other pipeline has a finer dtype.
    double products;
    // Of attention over such keys and values. The exponential multiplies an error of a logit, so
    // near ties may turn. The bound is four times the largest error that was seen on models/tiny
    // with random prompts. With 2, only NaN is found.
    double softmax;
};
constexpr Coarseness table[] = {
    {KEEL_DTYPE_F32, 1e-6, 1e-4, 1e-4},
    {KEEL_DTYPE_F16, 1e-3, 4e-3, 5e-2},   // 11 bits: a step is 2^-10
    {KEEL_DTYPE_BF16, 8e-3, 3e-2, 0.2},   // 8 bits: 2^-7
    {KEEL_DTYPE_Q8_0, 1.2e-2, 3e-2, 0.9}, // a step is 1/127 of the block's largest value
    {KEEL_DTYPE_Q4_0, 0.15, 0.3, 2},      // a step is 1/8 of it
    {KEEL_DTYPE_Q6_K, 5e-2, 0.1, 2},      // for weights; a step is 1/32 of it
    {KEEL_DTYPE_Q5_K, 7e-2, 0.15, 2},     // for weights; a step is 1/31 of it
    {KEEL_DTYPE_Q4_K, 0.14, 0.3, 2},      // for weights; a step is 1/15 of it
};

const Coarseness &coarseness(keel_dtype dtype) {
    for (const Coarseness &row : table) {
        if (row.dtype == dtype) return row;
    }
    return table[0];
}

constexpr double exact_sums = 1e-4;   // sums of f32 in another order: matmul, attention, scores
constexpr double exact_others = 1e-5; // one or two roundings
// Activations are quantized to 8 bits for products with 8-bit and 4-bit weights.
constexpr double fast_blocks = 3e-2;
constexpr double fast_sums = 8e-3; // both operands are rounded to bf16
// Queries, keys, probabilities and values have at least the precision of bf16. The exponential
// multiplies an error of a logit. The bound is four times the error that was seen on models/tiny
// (0.018).
constexpr double fast_attention = 7e-2;

bool is_attention(keel_op op) { return op == KEEL_OP_ATTENTION || op == KEEL_OP_ATTENTION_SCORES; }

} // namespace

keel_dtype coarser(keel_dtype a, keel_dtype b) {
    return coarseness(a).rounding >= coarseness(b).rounding ? a : b;
}

double op_bound(keel_op op, const OpDifference &d, keel_dtype output, bool is_kv_row) {
    const double stored = output == KEEL_DTYPE_F32 ? 0 : coarseness(output).rounding;
    if (is_kv_row) return exact_others + stored;
    double bound = exact_others;
    if (op == KEEL_OP_MATMUL) {
        const bool blocks = keel_dtype_block(d.weight_a) > 1 || keel_dtype_block(d.weight_b) > 1;
        bound = !d.fast ? exact_sums : blocks ? fast_blocks : fast_sums;
    } else if (is_attention(op)) {
        bound = d.fast ? fast_attention : exact_sums;
        if (d.kv_a != d.kv_b) bound = std::max(bound, coarseness(coarser(d.kv_a, d.kv_b)).softmax);
    }
    if ((op == KEEL_OP_MATMUL || op == KEEL_OP_EMBED) && d.weight_a != d.weight_b) {
        const Coarseness &worse = coarseness(coarser(d.weight_a, d.weight_b));
        bound = std::max(bound, op == KEEL_OP_EMBED ? worse.rounding : worse.products);
    }
    return bound + stored;
}

} // namespace keel
