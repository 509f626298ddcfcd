#include "eval/compare/op_bounds.hpp"

#include <algorithm>

namespace keel {
namespace {

// The bounds for each dtype. Errors are relative to the largest value of the row.
struct Coarseness {
    keel_dtype dtype;
    // Bound for stored values: a whole rounding step, because nearly equal inputs can be rounded in
    // different directions.
    double rounding;
    // Bound for dot products, if one pipeline has values of this dtype and the second pipeline has
    // a more precise dtype.
    double products;
    // Bound for attention with keys and values of this dtype. The exponential increases the error
    // of a logit, and nearly equal logits can change their order. The bound is four times the
    // largest error that was measured on models/tiny with random prompts. A bound of 2 finds only
    // NaN.
    double softmax;
};
constexpr Coarseness table[] = {
    {KEEL_DTYPE_F32, 1e-6, 1e-4, 1e-4},
    {KEEL_DTYPE_F16, 1e-3, 4e-3, 5e-2},   // 11 bits: a step is 2^-10
    {KEEL_DTYPE_BF16, 8e-3, 3e-2, 0.2},   // 8 bits: a step is 2^-7
    {KEEL_DTYPE_Q8_0, 1.2e-2, 3e-2, 0.9}, // a step is 1/127 of the block's largest value
    {KEEL_DTYPE_Q4_0, 0.15, 0.3, 2},      // a step is 1/8 of the block's largest value
    {KEEL_DTYPE_Q6_K, 5e-2, 0.1, 2},  // for weights; a step is 1/32 of the block's largest value
    {KEEL_DTYPE_Q5_K, 7e-2, 0.15, 2}, // for weights; a step is 1/31 of the block's largest value
    {KEEL_DTYPE_Q4_K, 0.14, 0.3, 2},  // for weights; a step is 1/15 of the block's largest value
};

const Coarseness &coarseness(keel_dtype dtype) {
    for (const Coarseness &row : table) {
        if (row.dtype == dtype) return row;
    }
    return table[0];
}

constexpr double exact_sums = 1e-4;   // for matmul, attention and scores: the backends add f32
                                      // numbers in different orders
constexpr double exact_others = 1e-5; // for all ops that are not in another constant: one or two
                                      // roundings
// Bound for products with 8-bit and 4-bit weights, for which activations are quantized to 8 bits.
constexpr double fast_blocks = 3e-2;
constexpr double fast_sums = 8e-3; // bound for products with both operands rounded to bf16
// Bound for attention in which queries, keys, probabilities and values have at least the precision
// of bf16. The exponential increases the error of a logit. The bound is four times the error that
// was measured on models/tiny (0.018).
constexpr double fast_attention = 7e-2;

bool is_matmul(keel_op op) { return op == KEEL_OP_MATMUL || op == KEEL_OP_EXPERT_MATMUL; }

bool is_attention(keel_op op) { return op == KEEL_OP_ATTENTION || op == KEEL_OP_ATTENTION_SCORES; }

} // namespace

keel_dtype coarser(keel_dtype a, keel_dtype b) {
    return coarseness(a).rounding >= coarseness(b).rounding ? a : b;
}

double op_bound(keel_op op, const OpDifference &d, keel_dtype output, bool is_kv_row) {
    const double stored = output == KEEL_DTYPE_F32 ? 0 : coarseness(output).rounding;
    if (is_kv_row) return exact_others + stored;
    double bound = exact_others;
    if (is_matmul(op)) {
        const bool blocks = keel_dtype_block(d.weight_a) > 1 || keel_dtype_block(d.weight_b) > 1;
        bound = !d.fast ? exact_sums : blocks ? fast_blocks : fast_sums;
    } else if (is_attention(op)) {
        bound = d.fast ? fast_attention : exact_sums;
        if (d.kv_a != d.kv_b) bound = std::max(bound, coarseness(coarser(d.kv_a, d.kv_b)).softmax);
    }
    if ((is_matmul(op) || op == KEEL_OP_EMBED) && d.weight_a != d.weight_b) {
        const Coarseness &worse = coarseness(coarser(d.weight_a, d.weight_b));
        bound = std::max(bound, op == KEEL_OP_EMBED ? worse.rounding : worse.products);
    }
    return bound + stored;
}

} // namespace keel
