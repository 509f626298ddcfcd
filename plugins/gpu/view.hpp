// Tensors in the form that GPU kernels take: 32-bit shapes and strides.
#pragma once

#include "gpu/report.hpp"

namespace keel_gpu {

// Element and block types. The kernels use the same numbers.
enum Type : uint32_t { type_f32 = 0, type_f16 = 1, type_bf16 = 2, type_q8_0 = 3, type_q4_0 = 4 };
constexpr uint32_t type_count = 5;

// Sets `type`. Returns false for dtypes without a Type.
bool type_of(keel_dtype dtype, Type &type);
keel_dtype dtype_of(Type type);
inline const char *type_name(Type type) { return keel_dtype_name(dtype_of(type)); }
inline bool is_block(Type type) { return type == type_q8_0 || type == type_q4_0; }

// Returns the size of a unit in bytes. Kernels address a tensor in units: 4 bytes for f32, i32 and
// u32, 2 bytes for f16, bf16 and blocks, 1 byte for 8-bit types. A block of q8_0 has 17 units, a
// block of q4_0 has 9.
constexpr uint32_t unit_bytes(keel_dtype dtype) {
    switch (dtype) {
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_I32:
    case KEEL_DTYPE_U32: return 4;
    case KEEL_DTYPE_U8:
    case KEEL_DTYPE_I8:
    case KEEL_DTYPE_F8E5M2:
    case KEEL_DTYPE_F8E4M3: return 1;
    default: return 2;
    }
}

// A tensor for a kernel: up to three outer dimensions, and rows of n contiguous elements. shape[2]
// and stride[2] belong to the dimension next to the rows; unused outer dimensions have length 1.
// The members are 32-bit words, so that OpenCL C and GLSL can declare the same struct. Element (i,
// j, k, e) of a type without blocks is at unit offset + i * stride[0] + j * stride[1] + k *
// stride[2] + e, modulo 2^32. A stride can be negative.
struct View {
    uint32_t shape[3];
    uint32_t stride[3]; // in units (see unit_bytes)
    uint32_t n;         // number of elements in a row
    uint32_t offset;    // distance from the start of the buffer, in units

    uint32_t rows() const { return shape[0] * shape[1] * shape[2]; }
};

// Returns the view of a tensor. A tensor of rank 1 becomes one row. Throws Refusal
// (KEEL_E_UNSUPPORTED) if offset or strides are not whole units or do not fit 32 bits.
View view_of(const keel_host *host, const keel_tensor *t, const char *name);
// These functions are for ops that only copy. bytes_view() views a tensor in units of `unit` bytes
// (4, 2 or 1), so n counts units. common_unit() returns the largest unit that all given tensors
// allow.
View bytes_view(const keel_host *host, const keel_tensor *t, uint32_t unit, const char *name);
uint32_t common_unit(const keel_tensor *a, const keel_tensor *b); // b may be NULL

inline bool is_f32(const keel_tensor *t) { return t != nullptr && t->dtype == KEEL_DTYPE_F32; }

inline int64_t last_dim(const keel_tensor *t) { return t->shape[t->rank - 1]; }

inline int64_t elements(const keel_tensor *t) {
    int64_t n = 1;
    for (uint32_t i = 0; i < t->rank; ++i) n *= t->shape[i];
    return n;
}

inline uint64_t row_bytes(const keel_tensor *t) {
    return keel_dtype_row_bytes(t->dtype, static_cast<uint64_t>(last_dim(t)));
}

} // namespace keel_gpu
