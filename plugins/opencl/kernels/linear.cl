// The ops matmul and embed. W_TYPE is the type of the weight. With SPLIT, the codes and scales of
// q8_0 and q4_0 are stored separately (weights.hpp). Without SPLIT, rows are stored as in the file.
// A row of W is read K_STEP elements at a time: 32 for block types, 16 for other types.
#define BLOCKS (W_TYPE >= 3)
#define FLAG_BIAS 1u
#define FLAG_ACCUMULATE 2u

typedef struct {
    // in bytes; offset: start of row 0; with SPLIT, scales: start of row 0's scales
    ulong offset, scales;
    uint row_bytes; // only used without SPLIT
    uint rows, cols;
} Weight;

// The 32 elements of block b of a row, without their scale: the first 16 (low) and the last 16
// (high).
typedef struct {
    float16 low, high;
} Block;

#if BLOCKS
#if SPLIT
static inline float scale_of(Bytes w, Weight m, uint row, uint b) {
    return half_at(w + m.scales + 2 * ((ulong)row * (m.cols / 32) + b));
}
#else
static inline float scale_of(Bytes w, Weight m, uint row, uint b) {
    return half_at(w + m.offset + (ulong)row * m.row_bytes + b * (W_TYPE == 3 ? 34 : 18));
}
#endif

// The start of a row's codes, and the distance between blocks. They are computed outside the loops,
// because address arithmetic inside the loops takes measurable time.
#if SPLIT
#define BLOCK_BYTES (W_TYPE == 3 ? 32 : 16)
static inline Bytes codes_of(Bytes w, Weight m, uint row) {
    return w + m.offset + (ulong)row * (m.cols / 32) * BLOCK_BYTES;
}
#else
#define BLOCK_BYTES (W_TYPE == 3 ? 34 : 18)
static inline Bytes codes_of(Bytes w, Weight m, uint row) {
    return w + m.offset + (ulong)row * m.row_bytes + 2;
}
#endif

static inline Block load_block(Bytes row_codes, uint b) {
    Block out;
    Bytes codes = row_codes + (size_t)b * BLOCK_BYTES;
#if W_TYPE == 3
    out.low = convert_float16(vload16(0, (__global const char *)codes));
    out.high = convert_float16(vload16(1, (__global const char *)codes));
#else
#if SPLIT
    const uchar16 packed = as_uchar16(*(__global const uint4 *)codes);
#else
    const uchar16 packed = vload16(0, codes);
#endif
    out.low = convert_float16(as_char16(packed & (uchar)15) - (char)8);
    out.high = convert_float16(as_char16(packed >> (uchar)4) - (char)8);
#endif
    return out;
}

// In the plain form, a work-item loops over the blocks of a row and converts sixteen scales at a
// time.
#if LANES == 1
static inline void load_scales(Bytes w, Weight m, uint row, uint b, float *scales) {
    const uint blocks = m.cols / 32;
#if SPLIT
    if (b + 16 <= blocks) {
        vstore16(load_halves(w + m.scales + 2 * ((ulong)row * blocks + b), 0), 0, scales);
        return;
    }
#endif
    for (uint i = 0; i < min(16u, blocks - b); ++i)
        scales[i] = scale_of(w, m, row, b + i);
}
#define LOAD_SCALES(scales, b)                                                                     \
    if ((b) % 16 == 0)                                                                             \
        for (uint r = 0; r < ROWS; ++r)                                                            \
            load_scales(w, m, rows[r], b, scales[r]);
#define SCALE(scales, r, b) scales[r][(b) % 16]
#else
#define LOAD_SCALES(scales, b)
#define SCALE(scales, r, b) scale_of(w, m, rows[r], b)
#endif
#else
static inline Bytes row_of(Bytes w, Weight m, uint row) {
    return w + m.offset + (ulong)row * m.row_bytes;
}
static inline float16 load_plain(Bytes row, uint e) {
#if W_TYPE == 0
    return vload16(0, (Floats)row + e);
#elif W_TYPE == 1
    return load_halves(row, e);
#else
    return as_float16(convert_uint16(vload16(0, (__global const ushort *)row + e)) << 16);
#endif
}
#endif

static inline float sum16(float16 v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
}

static inline void put(__global float *out, float sum, Floats bias, uint flags, uint n) {
    if (flags & FLAG_BIAS) sum += bias[n];
    if (flags & FLAG_ACCUMULATE) sum += *out;
    *out = sum;
}

// ---- one row of x: LANES work-items share ROWS rows of W ----

__kernel void matvec(Floats x, View xv, Bytes w, Weight m, Floats bias, uint bias_offset,
                     uint flags, __global float *out, View outv) {
    const uint first = ROW_ID * ROWS;
    SKIP_IF(first >= m.rows);
    x += xv.offset;
    float sums[ROWS];
    uint rows[ROWS];
    float16 acc[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r) {
        rows[r] = min(first + r, m.rows - 1);
        acc[r] = 0.0f;
    }
#if BLOCKS
    float scales[ROWS][16];
    Bytes codes[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
        codes[r] = codes_of(w, m, rows[r]);
    for (uint b = LANE; b < m.cols / 32; b += LANES) {
        const float16 x0 = vload16(0, x + 32 * b), x1 = vload16(1, x + 32 * b);
        LOAD_SCALES(scales, b);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            const Block block = load_block(codes[r], b);
            acc[r] += SCALE(scales, r, b) * (block.low * x0 + block.high * x1);
        }
    }
#else
    const uint whole = m.cols / 16 * 16;
    for (uint e = 16 * LANE; e < whole; e += 16 * LANES) {
        const float16 x0 = vload16(0, x + e);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
            acc[r] += load_plain(row_of(w, m, rows[r]), e) * x0;
    }
#endif
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
        sums[r] = sum16(acc[r]);
#if !BLOCKS
    for (uint e = whole + LANE; e < m.cols; e += LANES) {
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
            sums[r] += load_one(row_of(w, m, rows[r]), W_TYPE, e) * x[e];
    }
#endif
    ROOM(room);
    bias += bias_offset;
#pragma unroll
    for (uint r = 0; r < ROWS; ++r) {
        const float sum = ALL_SUM(sums[r], room);
        if (LANE == 0 && first + r < m.rows)
            put(out + outv.offset + first + r, sum, bias, flags, first + r);
    }
}

#if LANES == 1
// ---- several rows of x, plain form ----
//
// A work-item multiplies TOKENS rows of x with ROWS rows of W, with the sums in registers.

__kernel void matmul(Floats x, View xv, Bytes w, Weight m, Floats bias, uint bias_offset,
                     uint flags, __global float *out, View outv) {
    const uint token = (uint)get_global_id(0) * TOKENS, first = (uint)get_global_id(1) * ROWS;
    const uint tokens = xv.shape[2];
    if (token >= tokens || first >= m.rows) return;
    Floats xs[TOKENS];
    uint rows[ROWS];
    float16 acc[TOKENS][ROWS];
#pragma unroll
    for (uint t = 0; t < TOKENS; ++t) {
        xs[t] = x + xv.offset + (ulong)min(token + t, tokens - 1) * xv.stride[2];
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
            acc[t][r] = 0.0f;
    }
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
        rows[r] = min(first + r, m.rows - 1);
#if BLOCKS
    float scales[ROWS][16];
    Bytes codes[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
        codes[r] = codes_of(w, m, rows[r]);
    for (uint b = 0; b < m.cols / 32; ++b) {
        float16 low[ROWS], high[ROWS];
        LOAD_SCALES(scales, b);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            const Block block = load_block(codes[r], b);
            const float scale = SCALE(scales, r, b);
            low[r] = block.low * scale;
            high[r] = block.high * scale;
        }
#pragma unroll
        for (uint t = 0; t < TOKENS; ++t) {
            const float16 x0 = vload16(0, xs[t] + 32 * b), x1 = vload16(1, xs[t] + 32 * b);
#pragma unroll
            for (uint r = 0; r < ROWS; ++r)
                acc[t][r] = fma(high[r], x1, fma(low[r], x0, acc[t][r]));
        }
    }
#else
    const uint whole = m.cols / 16 * 16;
    for (uint e = 0; e < whole; e += 16) {
        float16 values[ROWS];
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
            values[r] = load_plain(row_of(w, m, rows[r]), e);
#pragma unroll
        for (uint t = 0; t < TOKENS; ++t) {
            const float16 x0 = vload16(0, xs[t] + e);
#pragma unroll
            for (uint r = 0; r < ROWS; ++r)
                acc[t][r] = fma(values[r], x0, acc[t][r]);
        }
    }
#endif
    bias += bias_offset;
    for (uint t = 0; t < TOKENS; ++t) {
        if (token + t >= tokens) break;
        __global float *to = out + outv.offset + (ulong)(token + t) * outv.stride[2];
        for (uint r = 0; r < ROWS && first + r < m.rows; ++r) {
            float sum = sum16(acc[t][r]);
#if !BLOCKS
            for (uint e = whole; e < m.cols; ++e)
                sum += load_one(row_of(w, m, rows[r]), W_TYPE, e) * xs[t][e];
#endif
            put(to + first + r, sum, bias, flags, first + r);
        }
    }
}
#else
// ---- several rows of x, local form ----
//
// A group of 16 x 16 work-items multiplies 64 rows of x with 64 rows of W. Tiles of 32 columns are
// in local memory.

#define TILE 64
#define DEPTH 32

__kernel __attribute__((reqd_work_group_size(16, 16, 1))) void
matmul(Floats x, View xv, Bytes w, Weight m, Floats bias, uint bias_offset, uint flags,
       __global float *out, View outv) {
    __local float x_tile[DEPTH][TILE + 1], w_tile[DEPTH][TILE + 1];
    const uint token = (uint)get_group_id(0) * TILE, first = (uint)get_group_id(1) * TILE;
    const uint tokens = xv.shape[2];
    const uint column = (uint)get_local_id(0), line = (uint)get_local_id(1),
               id = line * 16 + column;
    // each work-item loads 8 elements of a tile
    const uint fill_row = id / 4, fill_part = id % 4 * 8;
    float acc[4][4];
    for (uint t = 0; t < 4; ++t)
        for (uint r = 0; r < 4; ++r)
            acc[t][r] = 0.0f;
    const int x_there = token + fill_row < tokens, w_there = first + fill_row < m.rows;
    Floats x_row = x + xv.offset + (ulong)(x_there ? token + fill_row : 0) * xv.stride[2];
    for (uint k = 0; k < m.cols; k += DEPTH) {
        for (uint e = 0; e < 8; ++e) {
            const uint at = k + fill_part + e;
            x_tile[fill_part + e][fill_row] = x_there && at < m.cols ? x_row[at] : 0.0f;
        }
#if BLOCKS
        if (w_there) {
            const Block block = load_block(codes_of(w, m, first + fill_row), k / 32);
            const float16 part = fill_part < 16 ? block.low : block.high;
            const float8 eight = fill_part % 16 == 0 ? part.lo : part.hi;
            float values[8];
            vstore8(eight * scale_of(w, m, first + fill_row, k / 32), 0, values);
            for (uint e = 0; e < 8; ++e)
                w_tile[fill_part + e][fill_row] = values[e];
        } else {
            for (uint e = 0; e < 8; ++e)
                w_tile[fill_part + e][fill_row] = 0.0f;
        }
#else
        for (uint e = 0; e < 8; ++e) {
            const uint at = k + fill_part + e;
            w_tile[fill_part + e][fill_row] =
                w_there && at < m.cols ? load_one(row_of(w, m, first + fill_row), W_TYPE, at)
                                       : 0.0f;
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = 0; d < DEPTH; ++d) {
            float xs[4], ws[4];
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                xs[i] = x_tile[d][line + 16 * i];
                ws[i] = w_tile[d][column + 16 * i];
            }
#pragma unroll
            for (uint t = 0; t < 4; ++t)
#pragma unroll
                for (uint r = 0; r < 4; ++r)
                    acc[t][r] = fma(xs[t], ws[r], acc[t][r]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    bias += bias_offset;
    for (uint t = 0; t < 4; ++t) {
        const uint at = token + line + 16 * t;
        for (uint r = 0; r < 4 && at < tokens; ++r) {
            const uint n = first + column + 16 * r;
            if (n < m.rows)
                put(out + outv.offset + (ulong)at * outv.stride[2] + n, acc[t][r], bias, flags, n);
        }
    }
}
#endif

// Computes out[t, :] = W[ids[t], :] * scale. Each work-item handles 16 elements.
__kernel void embed(Ints ids, View idsv, Bytes w, Weight m, float scale, __global float *out,
                    View outv) {
    const uint begin = (uint)get_global_id(0) * 16, token = (uint)get_global_id(1);
    if (begin >= m.cols || token >= idsv.n) return;
    const int id = ids[idsv.offset + token];
    __global float *to = out + outv.offset + (ulong)token * outv.stride[2];
    const uint end = min(begin + 16, m.cols);
    if (id < 0 || id >= (int)m.rows) {
        for (uint e = begin; e < end; ++e)
            to[e] = NAN_F;
        return;
    }
#if BLOCKS
    const Block block = load_block(codes_of(w, m, (uint)id), begin / 32);
    vstore16((begin % 32 == 0 ? block.low : block.high) * scale_of(w, m, (uint)id, begin / 32) *
                 scale,
             0, to + begin);
#else
    for (uint e = begin; e < end; ++e)
        to[e] = load_one(row_of(w, m, (uint)id), W_TYPE, e) * scale;
#endif
}
