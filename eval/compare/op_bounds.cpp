#include "eval/compare/op_bounds.hpp"

#include <algorithm>

namespace keel {
namespace {

// One table for all dtypes, errors against the largest value of the row.
struct Coarseness {
    keel_dtype dtype;
    double rounding; // of a stored value: a whole step, where equal inputs may fall to either side
    double
        products; // of dot products with values in this dtype where the other side has better ones
    double softmax; // of attention over such keys and values: the exponential multiplies what a
                    // logit is off by, so near ties between
    // keys turn. Four times what was seen on models/tiny with prompts of random tokens; 2 judges
    // nothing but NaN
};
constexpr Coarseness table[] = {
    {KEEL_DTYPE_F32, 1e-6, 1e-4, 1e-4},
    {KEEL_DTYPE_F16, 1e-3, 4e-3, 5e-2},   // 11 bits: a step is 2^-10
    {KEEL_DTYPE_BF16, 8e-3, 3e-2, 0.2},   // 8 bits: 2^-7
    {KEEL_DTYPE_Q8_0, 1.2e-2, 3e-2, 0.9}, // a step is 1/127 of the block's largest
    {KEEL_DTYPE_Q4_0, 0.15, 0.3, 2},      // 1/8 of it
    {KEEL_DTYPE_Q6_K, 5e-2, 0.1, 2},      // of weights only: 1/32, 1/31 and 1/15 of it
    {KEEL_DTYPE_Q5_K, 7e-2, 0.15, 2},     //
    {KEEL_DTYPE_Q4_K, 0.14, 0.3, 2},      //
};

const Coarseness &coarseness(keel_dtype dtype) {
    for (const Coarseness &row : table) {
        if (row.dtype == dtype) return row;
    }
    return table[0];
}

constexpr double exact_sums = 1e-4;   // float sums in another order: matmul, attention, scores
constexpr double exact_others = 1e-5; // one or two roundings
constexpr double fast_blocks =
    3e-2; // activations quantized to 8 bits for products with 8- and 4-bit weights
constexpr double fast_sums = 8e-3; // both sides rounded to bf16 for the products
// Queries, keys, probabilities and values in bf16 at most. The exponential multiplies what a logit
// is off by: four times what was seen on models/tiny (0.018).
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
