#include "eval/compare/op_bounds.hpp"

#include <catch2/catch.hpp>

using namespace keel;

TEST_CASE("bounds widen only with the differences between the two sides") {
    OpDifference same;
    same.weight_a = same.weight_b = KEEL_DTYPE_Q4_0;
    same.kv_a = same.kv_b = KEEL_DTYPE_Q8_0;
    const double matmul = op_bound(KEEL_OP_MATMUL, same, KEEL_DTYPE_F32, false);
    const double attention = op_bound(KEEL_OP_ATTENTION, same, KEEL_DTYPE_F32, false);
    const double norm = op_bound(KEEL_OP_RMS_NORM, same, KEEL_DTYPE_F32, false);
    // both sides have the same coarse weights, so these count as exact numbers
    CHECK(matmul == 1e-4);
    CHECK(attention == 1e-4);
    CHECK(norm == 1e-5);
    CHECK(op_bound(KEEL_OP_RMS_NORM, same, KEEL_DTYPE_BF16, false) > norm);

    OpDifference fast = same;
    fast.fast = true;
    CHECK(op_bound(KEEL_OP_MATMUL, fast, KEEL_DTYPE_F32, false) == 3e-2);
    CHECK(op_bound(KEEL_OP_EXPERT_MATMUL, fast, KEEL_DTYPE_F32, false) == 3e-2);
    CHECK(op_bound(KEEL_OP_RMS_NORM, fast, KEEL_DTYPE_F32, false) == norm);
    fast.weight_a = fast.weight_b = KEEL_DTYPE_BF16;
    CHECK(op_bound(KEEL_OP_MATMUL, fast, KEEL_DTYPE_F32, false) < 3e-2);

    OpDifference weights = same;
    weights.weight_b = KEEL_DTYPE_F16;
    CHECK(op_bound(KEEL_OP_MATMUL, weights, KEEL_DTYPE_F32, false) == 0.3);
    CHECK(op_bound(KEEL_OP_EMBED, weights, KEEL_DTYPE_F32, false) == 0.15);
    CHECK(op_bound(KEEL_OP_ATTENTION, weights, KEEL_DTYPE_F32, false) == attention);

    OpDifference kv = same;
    kv.kv_b = KEEL_DTYPE_F32;
    CHECK(op_bound(KEEL_OP_ATTENTION, kv, KEEL_DTYPE_F32, false) == 0.9);
    CHECK(op_bound(KEEL_OP_MATMUL, kv, KEEL_DTYPE_F32, false) == matmul);
}

TEST_CASE("rows of the cache may differ by the rounding of their dtype") {
    double last = 0;
    for (const keel_dtype dtype :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        const double bound = op_bound(KEEL_OP_QKV_PREPARE, {}, dtype, true);
        CHECK(bound > last);
        last = bound;
    }
    CHECK(coarser(KEEL_DTYPE_F16, KEEL_DTYPE_Q4_0) == KEEL_DTYPE_Q4_0);
    CHECK(coarser(KEEL_DTYPE_BF16, KEEL_DTYPE_F32) == KEEL_DTYPE_BF16);
}
