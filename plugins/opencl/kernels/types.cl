// This text is put before every kernel file. It has the structs of the host's constants, functions
// that read and write element types, and the macros of the two kernel forms.
//
// LANES is the number of work-items that share a row. 1 is the plain form: one work-item handles a
// row, with vectors of W elements. A larger number is the local form: the LANES work-items of a
// group share the row.
#ifndef LANES
#define LANES 1
#endif
#if LANES == 1
#define W 16
#define ROW_ID ((uint)get_global_id(0))
#define LANE 0u
#define SHARED __private
#define SYNC
#define SKIP_IF(beyond)                                                                            \
    if (beyond) return
#else
#define W 4
#define ROW_ID ((uint)get_group_id(0))
#define LANE ((uint)get_local_id(0))
#define SHARED __local
// empty: the number of groups is exact, and a return before a barrier would be unsafe
#define SKIP_IF(beyond)
#define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define floatW JOIN(float, W)
#define vloadW JOIN(vload, W)
#define vstoreW JOIN(vstore, W)
#define NAN_F as_float(0x7FC00000u)

typedef __global const uchar *Bytes;
typedef __global uchar *OutBytes;
typedef __global const float *Floats;
typedef __global const int *Ints;

// A tensor for a kernel. Strides and offset are in units (gpu/view.hpp).
typedef struct {
    uint shape[3], stride[3];
    uint n, offset;
} View;

// A cache view (gpu/kv.hpp). Offsets of arenas are in units of 2 bytes. Offsets of integers are in
// units of 4 bytes.
typedef struct {
    uint kv_heads, max_length, block_shift, blocks;
    uint k_type, k_dim, k_offset, k_block, k_slot;
    uint v_type, v_dim, v_offset, v_block, v_slot;
    uint table_offset, table_stride, table_blocks;
    uint lengths_offset;
    uint positions_offset, positions_stride, positions_slots;
    uint seat_heads, seat_rows, seats_offset, seats_held;
} Kv;

typedef struct {
    uint rows, half_, interleaved; // half_: number of pairs in a head
    uint cos_offset, cos_stride, sin_offset, sin_stride;
} Rope;

typedef struct {
    uint offset, token_stride, head_stride;
} Positions;

enum { F32 = 0, F16 = 1, BF16 = 2, Q8_0 = 3, Q4_0 = 4 };

// Returns the unit at which row `row` begins. Rows are counted over all outer dimensions.
static inline uint row_at(View v, uint row) {
    const uint k = row % v.shape[2], rest = row / v.shape[2];
    return v.offset + rest / v.shape[1] * v.stride[0] + rest % v.shape[1] * v.stride[1] +
           k * v.stride[2];
}

static inline float sum_of(floatW v) {
#if W == 16
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
#else
    const float4 b = v;
#endif
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
}

// ---- element types; the argument `row` is the start of a row ----

// Converts sixteen f16 numbers to floats, exactly. Processors use this function, because their
// drivers convert f16 numbers one by one. GPUs have an instruction for it.
static inline float16 halves_float(ushort16 halves) {
    const uint16 bits = convert_uint16(halves), magnitude = bits & 0x7FFFu;
    uint16 f = (magnitude << 13) + 0x38000000u;
    // This line handles subnormal numbers.
    f = select(f, as_uint16(convert_float16(magnitude) * 0x1p-24f), magnitude < 0x400u);
    f = select(f, (magnitude << 13) | 0x7F800000u, magnitude >= 0x7C00u);
    return as_float16(f | (bits & 0x8000u) << 16);
}

// Loads sixteen f16 numbers, beginning with element e.
static inline float16 load_halves(Bytes row, uint e) {
#if LANES == 1
    return halves_float(vload16(0, (__global const ushort *)row + e));
#else
    return vload_half16(0, (__global const half *)row + e);
#endif
}

static inline float half_float(ushort bits) {
    const uint magnitude = bits & 0x7FFFu;
    uint f =
        magnitude < 0x400u ? as_uint((float)magnitude * 0x1p-24f) : (magnitude << 13) + 0x38000000u;
    f = magnitude >= 0x7C00u ? (magnitude << 13) | 0x7F800000u : f;
    return as_float(f | (uint)(bits & 0x8000u) << 16);
}

// Loads one f16 number.
static inline float half_at(Bytes p) {
#if LANES == 1
    return half_float(*(__global const ushort *)p);
#else
    return vload_half(0, (__global const half *)p);
#endif
}

static inline float bf16_float(ushort bits) {
    return as_float((uint)bits << 16);
}

static inline ushort float_bf16(float x) {
    const uint bits = as_uint(x);
    return (bits & 0x7FFFFFFFu) > 0x7F800000u
               ? (ushort)(bits >> 16 | 0x40u)
               : (ushort)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// Loads element e of a row.
static inline float load_one(Bytes row, uint type, uint e) {
    switch (type) {
    case F32:
        return ((Floats)row)[e];
    case F16:
        return half_at(row + 2 * e);
    case BF16:
        return bf16_float(((__global const ushort *)row)[e]);
    case Q8_0: {
        Bytes block = row + e / 32 * 34;
        return half_at(block) * (float)(char)block[2 + e % 32];
    }
    default: {
        Bytes block = row + e / 32 * 18;
        const uint code = block[2 + e % 16];
        return half_at(block) * (float)((int)(e % 32 < 16 ? code & 15u : code >> 4) - 8);
    }
    }
}

// Loads elements e .. e + W - 1 of a row. e is a multiple of W. All these elements must be inside
// the row.
static inline floatW load_some(Bytes row, uint type, uint e) {
    switch (type) {
    case F32:
        return vloadW(0, (Floats)row + e);
    case F16:
#if W == 16
        return load_halves(row, e);
#else
        return JOIN(vload_half, W)(0, (__global const half *)row + e);
#endif
    case BF16:
        return JOIN(as_float, W)(JOIN(convert_uint, W)(vloadW(0, (__global const ushort *)row + e))
                                 << 16);
    case Q8_0: {
        Bytes block = row + e / 32 * 34;
        return half_at(block) *
               JOIN(convert_float, W)(vloadW(0, (__global const char *)block + 2 + e % 32));
    }
    default: {
        Bytes block = row + e / 32 * 18;
        JOIN(uchar, W) codes = vloadW(0, block + 2 + e % 16);
        codes = e % 32 < 16 ? codes & (uchar)15 : codes >> (uchar)4;
        return half_at(block) * JOIN(convert_float, W)(JOIN(as_char, W)(codes) - (char)8);
    }
    }
}

// Stores a block of 32 elements as GGML's reference quantizer does. If the type cannot hold the
// values, the scale becomes NaN.
static inline void store_block(const float *x, uint type, OutBytes out) {
#pragma OPENCL FP_CONTRACT OFF
    int largest = 0;
    for (int i = 0; i < 32; ++i)
        largest = max(largest, as_int(x[i]) & 0x7FFFFFFF);
    int first = 0;
    while ((as_int(x[first]) & 0x7FFFFFFF) != largest)
        ++first;
    const float d = type == Q8_0 ? as_float(largest) / 127.0f : x[first] / -8.0f;
    const int fits = largest < 0x7F800000 && fabs(d) <= 65504.0f;
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    const int codes = fits && isfinite(inverse);
    vstore_half_rte(codes ? d : 0.0f, 0, (__global half *)out);
    if (!fits) *(__global ushort *)out = 0x7E00;
    const float by = codes ? inverse : 0.0f;
    if (type == Q8_0) {
        for (int i = 0; i < 32; ++i)
            out[2 + i] = codes ? (uchar)(char)(int)round(x[i] * by) : (uchar)0;
        return;
    }
    for (int i = 0; i < 16; ++i) {
        const int low = codes ? min(15, (int)(x[i] * by + 8.5f)) : 8;
        const int high = codes ? min(15, (int)(x[i + 16] * by + 8.5f)) : 8;
        out[2 + i] = (uchar)(low | high << 4);
    }
}

// Stores n floats as a row of any type. The lanes share the elements.
static inline void store_row(SHARED const float *x, uint n, OutBytes row, uint type) {
    switch (type) {
    case F32:
        for (uint e = LANE; e < n; e += LANES)
            ((__global float *)row)[e] = x[e];
        return;
    case F16:
        for (uint e = LANE; e < n; e += LANES)
            vstore_half_rte(x[e], e, (__global half *)row);
        return;
    case BF16:
        for (uint e = LANE; e < n; e += LANES)
            ((__global ushort *)row)[e] = float_bf16(x[e]);
        return;
    default:
        for (uint b = LANE; b < n / 32; b += LANES) {
            float block[32];
            for (uint i = 0; i < 32; ++i)
                block[i] = x[32 * b + i];
            store_block(block, type, row + b * (type == Q8_0 ? 34 : 18));
        }
    }
}

// ---- reductions over lanes; `room` is local memory for LANES floats ----

#if LANES == 1
#define ROOM(name)
#define ALL_SUM(x, room) (x)
#define ALL_MAX(x, room) (x)
#else
#define ROOM(name) __local float name[LANES]
#define ALL_SUM(x, room) all_sum(x, room)
#define ALL_MAX(x, room) all_max(x, room)
// Each lane adds up all values itself. This needs only two barriers and no barrier in a loop. PoCL
// 3.1 has bugs with barriers in loops.
static inline float all_sum(float x, __local float *room) {
    room[LANE] = x;
    SYNC;
    float4 many = 0.0f;
    for (uint i = 0; i < LANES / 4; ++i)
        many += vload4(i, room);
    SYNC;
    return (many.x + many.y) + (many.z + many.w);
}
static inline float all_max(float x, __local float *room) { // ignores NaN
    room[LANE] = x;
    SYNC;
    float4 many = -INFINITY;
    for (uint i = 0; i < LANES / 4; ++i)
        many = fmax(many, vload4(i, room));
    SYNC;
    return fmax(fmax(many.x, many.y), fmax(many.z, many.w));
}
#endif

// ---- the cache ----

// For a batch of sequences, these functions return the sequence of a head, the head's number within
// its sequence, and the head's row in block table, lengths and positions. For one sequence they
// return 0, head and head.
static inline uint sequence_of(Kv kv, uint head) {
    return kv.seat_heads == 0 ? 0 : head / kv.seat_heads;
}
static inline uint own_head(Kv kv, uint head) {
    return kv.seat_heads == 0 ? head : head % kv.seat_heads;
}
static inline uint book_of(Kv kv, Ints seats, uint head) {
    if (kv.seat_heads == 0) return head;
    const int seat =
        clamp(seats[kv.seats_offset + head / kv.seat_heads], 0, (int)kv.seats_held - 1);
    return (uint)seat * kv.seat_rows + head % kv.seat_heads;
}

// In the functions below, `head` is the head's row in block table, lengths and positions.
static inline uint kv_length(Kv kv, Ints lengths, uint head) {
    return (uint)clamp(lengths[kv.lengths_offset + head], 0, (int)kv.max_length);
}

// Returns the block of a slot, or -1 if the slot has no block.
static inline int kv_block(Kv kv, Ints table, uint head, uint slot) {
    const uint place = slot >> kv.block_shift;
    if (place >= kv.table_blocks) return -1;
    const int block = table[kv.table_offset + head * kv.table_stride + place];
    return block >= 0 && block < (int)kv.blocks ? block : -1;
}

static inline ulong k_place(Kv kv, int block, uint slot) {
    const uint in_block = slot & ((1u << kv.block_shift) - 1u);
    return 2 * ((ulong)kv.k_offset + (ulong)block * kv.k_block + (ulong)in_block * kv.k_slot);
}

static inline ulong v_place(Kv kv, int block, uint slot) {
    const uint in_block = slot & ((1u << kv.block_shift) - 1u);
    return 2 * ((ulong)kv.v_offset + (ulong)block * kv.v_block + (ulong)in_block * kv.v_slot);
}

// ---- RoPE ----

// Rotates `pairs` pairs of a row in place by row `at` of the tables. If `sign` is -1, it rotates
// back. The lanes share the pairs. The caller must synchronize the lanes before and after the call.
// (A kernel must never write to its struct arguments: in PoCL 3.1, all work-items of a group share
// them.)
static inline void rotate_row(SHARED float *x, Rope rope, uint pairs, Floats cos_table,
                              Floats sin_table, uint at, float sign) {
    Floats c = cos_table + rope.cos_offset + at * rope.cos_stride;
    Floats s = sin_table + rope.sin_offset + at * rope.sin_stride;
    for (uint i = LANE; i < pairs; i += LANES) {
        const uint p = rope.interleaved ? 2 * i : i,
                   q = rope.interleaved ? 2 * i + 1 : i + rope.half_;
        const float a = x[p], b = x[q], co = c[i], si = sign * s[i];
        x[p] = a * co - b * si;
        x[q] = b * co + a * si;
    }
}

static inline uint table_row(Rope rope, int position) {
    const int rest = position % (int)rope.rows;
    return (uint)(rest < 0 ? rest + (int)rope.rows : rest);
}

// ---- attention and its scores ----

#define CAUSAL 1u
#define WINDOW 2u
#define SOFTCAP 4u
#define LSE 8u
#define STATS 16u // stores the maximum and the sum of each row, for the scores
#define RANGES 32u // only attention_scores uses this
#define WEIGHTS 64u
#define LOGITS 128u

typedef struct {
    uint flags, tokens, group;
    float scale, softcap;
    int window;
    Positions place; // where q_positions has the position of a token
} Rules;

// Returns the limit of the slots that a token sees: only slots below the limit. With CAUSAL, slot j
// is seen if j <= length - tokens + token.
static inline uint seen_end(Rules rules, uint length, uint token) {
    if (!(rules.flags & CAUSAL)) return length;
    return (uint)clamp((int)length - (int)rules.tokens + (int)token + 1, 0, (int)length);
}

static inline float capped(Rules rules, float logit) {
    return rules.flags & SOFTCAP ? rules.softcap * tanh(logit / rules.softcap) : logit;
}

static inline float dot_row(Floats q, Bytes row, uint type, uint n) {
    floatW many = 0.0f;
    uint e = 0;
    for (; e + W <= n; e += W)
        many += vloadW(0, q + e) * load_some(row, type, e);
    float sum = sum_of(many);
    for (; e < n; ++e)
        sum += q[e] * load_one(row, type, e);
    return sum;
}

#define STAT_AT(head, r) (2 * ((ulong)(head)*rules.tokens * rules.group + (r)))
