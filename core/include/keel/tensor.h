/* Tensors: element types and the struct that passes a tensor to an op.
 *
 * A tensor is a view of a part of a buffer: element type, shape, strides, and the offset of its
 * first element. It owns nothing. The core creates the views and passes them to the ops of a
 * backend (ops.h). The buffer is memory of the backend. Only the backend knows the members of a
 * keel_buffer.
 *
 * Quantized types ("block types") store elements in blocks: a few integers with few bits each that
 * share a scale. Blocks lie along the innermost dimension, and a row has a whole number of blocks.
 *
 * EXAMPLE. Rows 8 to 15 of a contiguous f32 matrix [64, 128], which starts at byte 4096:
 *
 *     keel_tensor t = {KEEL_HEADER(keel_tensor)};
 *     t.buffer = buffer;
 *     t.offset = 4096 + 8 * 128 * 4;
 *     t.dtype = KEEL_DTYPE_F32;
 *     t.rank = 2;
 *     t.shape[0] = 8, t.shape[1] = 128;
 *     t.stride[0] = 128 * 4;            // in bytes; stride[1] is not read
 *
 * Everything here exists since 0.1. Thread of all functions: any thread. */
#ifndef KEEL_TENSOR_H
#define KEEL_TENSOR_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element type of a tensor. Numbers of several bytes are little-endian. A backend may define its
 * own types from 0x10000 on.
 *
 * In the comments below, a block is described byte by byte in the order of memory, and `value` is
 * the number that an element represents. A byte has a low nibble (byte & 15) and a high nibble
 * (byte >> 4). Blocks have the layout of GGML, the library that defines GGUF files. */
typedef uint32_t keel_dtype;
enum keel_dtype_e {
    /* No type: a member that is not set. */
    KEEL_DTYPE_NONE = 0,
    /* IEEE 754 binary32. */
    KEEL_DTYPE_F32 = 1,
    /* IEEE 754 binary16. */
    KEEL_DTYPE_F16 = 2,
    /* The upper half of a binary32. Conversion from f32 rounds to nearest even. */
    KEEL_DTYPE_BF16 = 3,
    /* 32 elements in 34 bytes: f16 scale d, int8 q[32]. value = d * q. */
    KEEL_DTYPE_Q8_0 = 8,
    /* 32 elements in 18 bytes: f16 scale d, 16 bytes. Byte j has element j in its low nibble and
     * element j + 16 in its high nibble. value = d * (nibble - 8). */
    KEEL_DTYPE_Q4_0 = 9,
    /* The K types: 256 elements in groups, and each group has a small integer scale. Only weights
     * have these types: `w` of matmul and embed, and the sources of weight_prepare. No other op
     * takes them, and no KV cache stores them. A backend lists the K types that it takes in
     * keel_ctx_info.weight_dtypes (backend.h). For other backends the core converts the weights.
     *
     * Scales of Q4_K and Q5_K: 12 bytes p hold a scale s and a minimum z, six bits each, for each
     * of the 8 groups of 32 elements.
     *   Groups 0 to 3: s = p[g] & 63, z = p[g+4] & 63.
     *   Groups 4 to 7: s = (p[g+4] & 15) + 16 * (p[g-4] >> 6),
     *                  z = (p[g+4] >> 4) + 16 * (p[g] >> 6). */

    /* 256 elements in 144 bytes: f16 d, f16 dmin, p[12], 128 bytes of nibbles. Bytes 32*i to
     * 32*i+31 of the nibbles have group 2*i in the low nibbles and group 2*i+1 in the high ones.
     * value = d * s * nibble - dmin * z. */
    KEEL_DTYPE_Q4_K = 10,
    /* 256 elements in 176 bytes: f16 d, f16 dmin, p[12], 32 bytes h, 128 bytes of nibbles as in
     * Q4_K. q has five bits: the nibble, and above it bit g of h[j], for element j of group g.
     * value = d * s * q - dmin * z. */
    KEEL_DTYPE_Q5_K = 11,
    /* 256 elements in 210 bytes: 128 bytes, 64 bytes, int8 s[16], f16 d. Each half of the block
     * (128 elements) has 64 bytes l of the first part and 32 bytes h of the second. Element j of
     * a half has a q of six bits. Its lower four bits are nibble j / 64 of l[j % 64] (0: the low
     * one). Its upper two bits are the bits from 2 * (j / 32) on of h[j % 32].
     * value = d * s[i] * (q - 32) for group i of 16 elements. */
    KEEL_DTYPE_Q6_K = 12,
    /* Plain integers. */
    KEEL_DTYPE_I32 = 16,
    KEEL_DTYPE_U32 = 17,
    KEEL_DTYPE_U8 = 18,
    KEEL_DTYPE_I8 = 19,
    /* Floats of 8 bits: 5 exponent and 2 mantissa bits, or 4 and 3. No op computes with them;
     * copy, transpose and zero move their bytes. */
    KEEL_DTYPE_F8E5M2 = 32,
    KEEL_DTYPE_F8E4M3 = 33
};

/* Number of elements of a block: 1 for plain types, 0 for a type that this header does not know. */
static inline uint32_t keel_dtype_block(keel_dtype t) {
    switch (t) {
    case KEEL_DTYPE_Q8_0:
    case KEEL_DTYPE_Q4_0:
        return 32;
    case KEEL_DTYPE_Q4_K:
    case KEEL_DTYPE_Q5_K:
    case KEEL_DTYPE_Q6_K:
        return 256;
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_F16:
    case KEEL_DTYPE_BF16:
    case KEEL_DTYPE_I32:
    case KEEL_DTYPE_U32:
    case KEEL_DTYPE_U8:
    case KEEL_DTYPE_I8:
    case KEEL_DTYPE_F8E5M2:
    case KEEL_DTYPE_F8E4M3:
        return 1;
    default:
        return 0;
    }
}

/* Number of bytes of a block (of an element, for plain types). 0 for an unknown type. */
static inline uint32_t keel_dtype_bytes(keel_dtype t) {
    switch (t) {
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_I32:
    case KEEL_DTYPE_U32:
        return 4;
    case KEEL_DTYPE_F16:
    case KEEL_DTYPE_BF16:
        return 2;
    case KEEL_DTYPE_Q8_0:
        return 34;
    case KEEL_DTYPE_Q4_0:
        return 18;
    case KEEL_DTYPE_Q4_K:
        return 144;
    case KEEL_DTYPE_Q5_K:
        return 176;
    case KEEL_DTYPE_Q6_K:
        return 210;
    case KEEL_DTYPE_U8:
    case KEEL_DTYPE_I8:
    case KEEL_DTYPE_F8E5M2:
    case KEEL_DTYPE_F8E4M3:
        return 1;
    default:
        return 0;
    }
}

/* Returns 1 for the K types, which only weights can have, else 0. */
static inline int keel_dtype_weights_only(keel_dtype t) {
    return t == KEEL_DTYPE_Q4_K || t == KEEL_DTYPE_Q5_K || t == KEEL_DTYPE_Q6_K;
}

/* Number of bytes of n contiguous elements. n is a multiple of the block; if it is not, only whole
 * blocks count. 0 for an unknown type. */
static inline uint64_t keel_dtype_row_bytes(keel_dtype t, uint64_t n) {
    const uint32_t block = keel_dtype_block(t);
    return block == 0 ? 0 : n / block * keel_dtype_bytes(t);
}

/* The type's name for messages: "f32", "q8_0". "?" for an unknown type. A static string. */
static inline const char *keel_dtype_name(keel_dtype t) {
    switch (t) {
    case KEEL_DTYPE_NONE:
        return "none";
    case KEEL_DTYPE_F32:
        return "f32";
    case KEEL_DTYPE_F16:
        return "f16";
    case KEEL_DTYPE_BF16:
        return "bf16";
    case KEEL_DTYPE_Q8_0:
        return "q8_0";
    case KEEL_DTYPE_Q4_0:
        return "q4_0";
    case KEEL_DTYPE_Q4_K:
        return "q4_k";
    case KEEL_DTYPE_Q5_K:
        return "q5_k";
    case KEEL_DTYPE_Q6_K:
        return "q6_k";
    case KEEL_DTYPE_I32:
        return "i32";
    case KEEL_DTYPE_U32:
        return "u32";
    case KEEL_DTYPE_U8:
        return "u8";
    case KEEL_DTYPE_I8:
        return "i8";
    case KEEL_DTYPE_F8E5M2:
        return "f8e5m2";
    case KEEL_DTYPE_F8E4M3:
        return "f8e4m3";
    default:
        return "?";
    }
}

/* Memory of a backend: see buffer_create and buffer_destroy in backend.h. The core does not know
 * its contents. */
typedef struct keel_buffer keel_buffer;

/* The most dimensions that a tensor has. */
#define KEEL_MAX_RANK 4

/* A view into a buffer. Args structs point to views. The caller of an op owns the views; they are
 * valid during the call. */
typedef struct keel_tensor {
    keel_header h;
    /* The memory. NULL only in the templates of keel_backend.op_plan. The view does not own the
     * buffer: the side that created the buffer destroys it after the last use. */
    keel_buffer *buffer;
    /* Bytes from the start of the buffer to element 0. It is a multiple of the element's size (for
     * block types: of 2). A backend can need more alignment: its ops then return KEEL_E_UNSUPPORTED
     * for this view, and the core copies the tensor. */
    uint64_t offset;
    /* Type of the elements. */
    keel_dtype dtype;
    /* Number of dimensions, 1 to KEEL_MAX_RANK. */
    uint32_t rank;
    /* Number of elements along each dimension, shape[0] is the outermost dimension. 0 is allowed:
     * then the tensor has no elements, and the op does nothing for it. Entries from `rank` on are
     * 0. */
    int64_t shape[KEEL_MAX_RANK];
    /* Bytes from one index of a dimension to the next index. The innermost dimension is contiguous,
     * so stride[rank - 1] is not read: elements are adjacent, and a row of block types has
     * keel_dtype_row_bytes() bytes. Entries from `rank` on are 0. */
    int64_t stride[KEEL_MAX_RANK];
} keel_tensor;

#ifdef __cplusplus
}
#endif
#endif
