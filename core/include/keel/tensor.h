/* Tensors: dtypes, block layouts, the descriptor that ops take. */
#ifndef KEEL_TENSOR_H
#define KEEL_TENSOR_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. 0x10000 and above belong to backends that bring their own. Multi-byte values
 * are little-endian. */
typedef uint32_t keel_dtype;
enum keel_dtype_e {
    KEEL_DTYPE_NONE = 0,
    /* IEEE 754 binary32 */
    KEEL_DTYPE_F32 = 1,
    /* IEEE 754 binary16 */
    KEEL_DTYPE_F16 = 2,
    /* upper half of binary32, rounded to nearest even */
    KEEL_DTYPE_BF16 = 3,
    /* GGML: blocks of 32: f16 scale d, int8 q[32]; value = d*q; 34 bytes */
    KEEL_DTYPE_Q8_0 = 8,
    /* GGML: blocks of 32: f16 scale d, 16 bytes; byte j holds element j in its low and element
     * j+16 in its high nibble; value = d*(nibble-8); 18 bytes */
    KEEL_DTYPE_Q4_0 = 9,
    /* GGML's K types: blocks of 256 whose groups have small integer scales. Of weights only, the
     * W of matmul and embed and what weight_prepare takes; no other op takes them, nor a cache.
     * Backends that take them say so in keel_ctx_info.weight_dtypes; for others the core
     * converts. since 0.1. The scales of Q4_K and Q5_K: bytes p[12] hold six bits s and six bits
     * z for each of the eight groups of 32 values. Groups 0 to 3: s = p[g] & 63, z = p[g+4] &
     * 63. Groups 4 to 7: s = (p[g+4] & 15) + 16*(p[g-4] >> 6), z = (p[g+4] >> 4) + 16*(p[g] >>
     * 6). */
    /* f16 d, f16 dmin, p[12], 128 bytes; bytes 32*i..32*i+31 of these hold group 2*i in their
     * low and group 2*i+1 in their high nibbles; value = d*s*nibble - dmin*z; 144 bytes */
    KEEL_DTYPE_Q4_K = 10,
    /* f16 d, f16 dmin, p[12], 32 bytes h, 128 bytes as Q4_K's; bit g of h[j] is the fifth bit of
     * value j of group g; value = d*s*q - dmin*z; 176 bytes */
    KEEL_DTYPE_Q5_K = 11,
    /* 128 bytes, 64 bytes, int8 s[16], f16 d. Each half of the block has 64 bytes l and 32 bytes
     * h of these: its value j has its low bits in nibble j/64 of l[j%64], its upper two in bits
     * 2*(j/32) of h[j%32]. Group i of 16 values: value = d*s[i]*(q-32); 210 bytes */
    KEEL_DTYPE_Q6_K = 12,
    KEEL_DTYPE_I32 = 16,
    KEEL_DTYPE_U32 = 17,
    KEEL_DTYPE_U8 = 18,
    KEEL_DTYPE_I8 = 19,
    KEEL_DTYPE_F8E5M2 = 32,
    KEEL_DTYPE_F8E4M3 = 33
};

/* Elements per block (1 for plain types), 0 for a type that this header does not know. [any] */
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

/* Bytes per block, 0 for an unknown type. [any] */
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

/* 1 for types that only weights have: the K types. [any] */
static inline int keel_dtype_weights_only(keel_dtype t) {
    return t == KEEL_DTYPE_Q4_K || t == KEEL_DTYPE_Q5_K || t == KEEL_DTYPE_Q6_K;
}

/* Bytes of n contiguous elements; n is a multiple of the block (else rounded down). [any] */
static inline uint64_t keel_dtype_row_bytes(keel_dtype t, uint64_t n) {
    const uint32_t block = keel_dtype_block(t);
    return block == 0 ? 0 : n / block * keel_dtype_bytes(t);
}

/* "f32", "q8_0", ...; "?" for an unknown type. [any] */
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

/* A block of a backend's memory. Made and destroyed through the backend's table; opaque to the
 * core. */
typedef struct keel_buffer keel_buffer;

#define KEEL_MAX_RANK 4

/* A view into a buffer. shape[0] is the outermost dimension, shape[rank-1] the innermost, in
 * elements. stride[i] is in bytes; the innermost dimension is contiguous, so stride[rank-1] is
 * not read (for block types a row is keel_dtype_row_bytes long). Unused entries are zero. A
 * dimension may be 0: then the op does nothing for it. offset is aligned to the dtype's natural
 * alignment (block types: 2); a backend whose ops want more refuses, and the core copies. */
typedef struct keel_tensor {
    keel_header h;
    keel_buffer *buffer;
    uint64_t offset; /* bytes from the buffer's start to element 0 */
    keel_dtype dtype;
    uint32_t rank; /* 1..KEEL_MAX_RANK */
    int64_t shape[KEEL_MAX_RANK];
    int64_t stride[KEEL_MAX_RANK];
} keel_tensor;

#ifdef __cplusplus
}
#endif
#endif
