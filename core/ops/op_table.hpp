#pragma once

#include <keel/backend.h>

namespace keel {

inline constexpr keel_op op_count = KEEL_OP_EXPERT_MATMUL; // ids are 1..op_count

const char *op_name(keel_op op); // "matmul"
bool has_op(const keel_backend &table, keel_op op);
// Calls the op's function in the table, which must not be NULL.
keel_status call_op(const keel_backend &table, keel_op op, keel_ctx *ctx, const keel_op_args *args);

} // namespace keel
