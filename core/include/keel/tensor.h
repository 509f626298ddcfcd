/* Tensors: dtypes, block layouts, the descriptor that ops take. */
#ifndef KEEL_TENSOR_H
#define KEEL_TENSOR_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. 0x10000 and above belong to backends that bring their own. Multi-byte values are little-endian. */
typedef uint32_t keel_dtype;
enum keel_dtype_e {
    KEEL_DTYPE_NONE = 0,
    KEEL_DTYPE_F32 = 1,  /* IEEE 754 binary32 */
    KEEL_DTYPE_F16 = 2,  /* IEEE 754 binary16 */
    KEEL_DTYPE_BF16 = 3, /* upper half of binary32, rounded to nearest even */
    KEEL_DTYPE_Q8_0 = 8, /* GGML: blocks of 32: f16 scale d, int8 q[32]; value = d*q; 34 bytes */
    KEEL_DTYPE_Q4_0 = 9, /* GGML: blocks of 32: f16 scale d, 16 bytes; byte j holds element j in its low and element
                            j+16 in its high nibble; value = d*(nibble-8); 18 bytes */
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
    case KEEL_DTYPE_U8:
    case KEEL_DTYPE_I8:
    case KEEL_DTYPE_F8E5M2:
    case KEEL_DTYPE_F8E4M3:
        return 1;
    default:
        return 0;
    }
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

/* A block of a backend's memory. Made and destroyed through the backend's table; opaque to the core. */
typedef struct keel_buffer keel_buffer;

#define KEEL_MAX_RANK 4

/* A view into a buffer. shape[0] is the outermost dimension, shape[rank-1] the innermost, in elements. stride[i] is in
 * bytes; the innermost dimension is contiguous, so stride[rank-1] is not read (for block types a row is
 * keel_dtype_row_bytes long). Unused entries are zero. A dimension may be 0: then the op does nothing for it.
 * offset is aligned to the dtype's natural alignment (block types: 2); a backend whose ops want more refuses, and the core copies. */
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
