#pragma once

#include "reference/context.hpp"

#include <initializer_list>

namespace keel::reference {

// Checks of an op's args. They use only shapes and dtypes. So they work for calls, and also for
// op_plan, which has no buffers yet. They return KEEL_E_INVALID_ARG for args that break the rules
// of the headers, and KEEL_E_UNSUPPORTED for dtypes that are not supported.

// Sets of dtypes.
enum Types : uint32_t {
    types_f32 = 1,
    types_float = 2,  // f32, f16, bf16
    types_weight = 4, // f32, f16, bf16, q8_0, q4_0: types of stored values
    types_i32 = 8,
    types_number = 16, // f32, i32
    types_any = 32,    // all known types except those that only weights can have
    types_matrix = 64  // types of W: types_weight, q4_k, q5_k, q6_k
};

inline bool has(uint64_t features, uint64_t bit) { return (features & bit) != 0; }

constexpr int64_t any_size = -1;
using Shape = std::initializer_list<int64_t>;

// Refuses a NULL tensor, a rank or size other than `shape`, a dtype that is not in `types`, and
// rows that are not whole blocks.
void need(const keel_tensor *t, const char *name, Types types, Shape shape);
// Refuses a NULL tensor, a dtype that is not in `types`, and rows that are not whole blocks. Any
// rank and shape is allowed.
void need(const keel_tensor *t, const char *name, Types types);
void need_same_shape(const keel_tensor *a, const keel_tensor *b, const char *what);
void need_same_dtype(const keel_tensor *a, const keel_tensor *b, const char *what);
// Checks positions: i32 [m] or [m, kv_heads].
void need_positions(const keel_tensor *t, const char *name, int64_t m, int64_t kv_heads);
void need_tables(const keel_rope_tables *tables, int64_t head_dim);
void need_cache(const keel_kv_view *kv, const char *name);
void need_that(bool fact, const char *what);
// Returns the number of elements of the innermost dimension.
int64_t last_dim(const keel_tensor *t);

} // namespace keel::reference
