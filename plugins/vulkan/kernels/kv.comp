// The cache ops: kv_append and qkv_prepare (-DAPPEND), kv_gather (-DGATHER), kv_rerotate
// (-DREROTATE).
#version 460
#ifdef APPEND
#define PARAMS AppendParams
#elif defined(GATHER)
#define PARAMS GatherParams
#else
#define PARAMS RerotateParams
#endif
#define PARAMS_IN_MEMORY
#define HEAD_STORES
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "kv.glsl"
#ifndef GATHER
#include "math.glsl"
#include "quantize.glsl"
#include "head.glsl"
#endif
#ifdef APPEND
#include "reduce.glsl"
#endif

#ifdef APPEND

// Computes x / sqrt(mean(x^2) + eps) * weight.
void normalize_head(uint64_t weight, uint dim) {
    float sum = 0.0;
    for (uint e = gl_LocalInvocationIndex; e < dim; e += gl_WorkGroupSize.x)
        sum += head_row[e] * head_row[e];
    const float factor = 1.0 / sqrt(group_sum(sum) / float(dim) + P.eps);
    for (uint e = gl_LocalInvocationIndex; e < dim; e += gl_WorkGroupSize.x)
        head_row[e] = head_row[e] * factor * InF32(weight).v[e];
    barrier();
}

// In a batch of sequences, each token is the newest token of its own sequence.
uint head_of(uint head, uint i) {
    return P.kv.seat_heads == 0u ? head : i * P.kv.seat_heads + head;
}

// Returns the slot of token i in a head. The result is negative if the token has no slot.
int slot_of(uint head, uint i) {
    return int(kv_length(P.kv, head_of(head, i))) - (P.kv.seat_heads == 0u ? int(P.m) - int(i) : 1);
}

// Each workgroup handles one head of one token: first the query heads, then the key heads, then the
// value heads.
void main() {
    const uint kv_heads = P.kv.kv_heads, units = P.heads + 2u * kv_heads;
    for (uint i = gl_WorkGroupID.y; i < P.m; i += gl_NumWorkGroups.y) {
        for (uint unit = gl_WorkGroupID.x; unit < units; unit += gl_NumWorkGroups.x) {
            if (unit >= P.heads + kv_heads) {
                const uint h = unit - P.heads - kv_heads;
                const int slot = slot_of(h, i);
                if (slot < 0) continue;
                const uint64_t to = v_row(P.kv, head_of(h, i), uint(slot));
                load_head(kF32, at_row(P.v, P.v_at, i, h), P.kv.v_dim);
                if (to != 0ul) store_head(P.kv.v_type, to, P.kv.v_dim);
                continue;
            }
            const bool is_key = unit >= P.heads;
            const uint h = is_key ? unit - P.heads : unit, kv_head = is_key ? h : h / P.group,
                       dim = P.kv.k_dim;
            const int position = given_position(P.positions, P.positions_at, i, kv_head);
            load_head(kF32, is_key ? at_row(P.k, P.k_at, i, h) : at_row(P.q, P.q_at, i, h), dim);
            if (P.k_norm != 0ul) normalize_head(is_key ? P.k_norm : P.q_norm, dim);
            const uint64_t copy = is_key ? P.k_unrotated : P.q_unrotated;
            if (copy != 0ul) {
                if (is_key)
                    store_head_f32(at_row(copy, P.k_unrotated_at, i, h), dim);
                else
                    store_head_f32(at_row(copy, P.q_unrotated_at, i, h), dim);
                barrier();
            }
            if (P.rotate != 0u) rotate_head(P.rope, rope_row(P.rope, position), 1.0);
            if (!is_key) {
                store_head_f32(at_row(P.q_out, P.q_out_at, i, h), dim);
                continue;
            }
            const int slot = slot_of(h, i);
            if (slot < 0) continue;
            const uint64_t to = k_row(P.kv, head_of(h, i), uint(slot));
            if (to != 0ul) store_head(P.kv.k_type, to, dim);
            if (gl_LocalInvocationIndex == 0u && uint(slot) < P.kv.positions_slots)
                I32(position_at(P.kv, head_of(h, i), uint(slot))).v[0] = position;
        }
    }
}

#elif defined(GATHER)

// number of bytes that an invocation moves at a time: 4 or 2
layout(constant_id = 1) const uint UNIT = 4;

uint get_unit(uint64_t from) {
    if (UNIT == 4u) return InU32(from).v[0];
    return uint(InU16(from).v[0]);
}
void put_unit(uint64_t to, uint value) {
    if (UNIT == 4u)
        U32(to).v[0] = value;
    else
        U16(to).v[0] = uint16_t(value);
}

uint row_bytes_of(uint type, uint dim) {
    return type == kF32  ? 4u * dim
           : type < kQ8  ? 2u * dim
           : type == kQ8 ? dim / 32u * 34u
                         : dim / 32u * 18u;
}

// Returns the address of column c of a slot, or 0 if the slot has no block. `part` is 0 for keys, 1
// for values, 2 for positions or the side array.
uint64_t column_at(Kv kv, uint part, uint head, uint slot, uint c) {
    if (part == 2u) {
        if (P.side != 0ul)
            return slot < P.side_slots ? at4(P.side, P.side_offset + head * P.side_stride + slot) +
                                             uint64_t(c * UNIT)
                                       : 0ul;
        return slot < kv.positions_slots ? position_at(kv, head, slot) + uint64_t(c * UNIT) : 0ul;
    }
    const uint64_t row = part == 0u ? k_row(kv, head, slot) : v_row(kv, head, slot);
    return row == 0ul ? 0ul : row + uint64_t(c * UNIT);
}

const uint AHEAD = 8; // number of slots that are read before they are written

// Each invocation moves one column of a head's rows. If source and target are the same memory, it
// moves the slots in order. This is safe for two reasons. The indices rise strictly, so no slot is
// read after it was overwritten. And no other invocation accesses the column.
void main() {
    const uint head = gl_WorkGroupID.y, part = P.side != 0ul ? 2u : gl_WorkGroupID.z % 3u;
    const uint lanes = P.in_place != 0u ? 1u : gl_NumWorkGroups.z / 3u,
               lane = P.in_place != 0u ? 0u : gl_WorkGroupID.z / 3u;
    const uint bytes = part == 0u   ? row_bytes_of(P.from.k_type, P.from.k_dim)
                       : part == 1u ? row_bytes_of(P.from.v_type, P.from.v_dim)
                                    : 4u;
    const uint c = gl_GlobalInvocationID.x;
    if (c * UNIT >= bytes) return;
    const uint count = uint(clamp(InI32(P.count).v[P.count_offset + head], 0, int(P.most)));
    InI32 index = InI32(at4(P.index, P.index_offset + head * P.index_stride));
    for (uint first = lane * AHEAD; first < count; first += lanes * AHEAD) {
        uint values[AHEAD];
        bool there[AHEAD];
        [[unroll]] for (uint a = 0; a < AHEAD; ++a) {
            const uint j = first + a;
            there[a] = false;
            values[a] = 0u;
            if (j >= count) continue;
            const int slot = index.v[j];
            const uint64_t from =
                slot >= int(j) ? column_at(P.from, part, head, uint(slot), c) : 0ul;
            if (from == 0ul) continue;
            there[a] = true;
            values[a] = get_unit(from);
        }
        [[unroll]] for (uint a = 0; a < AHEAD; ++a) {
            if (!there[a]) continue;
            const uint64_t to = column_at(P.to, part, head, first + a, c);
            if (to != 0ul) put_unit(to, values[a]);
        }
    }
}

#else

// Each workgroup handles one slot of a head.
void main() {
    const uint head = gl_WorkGroupID.y,
               end = min(min(P.end, kv_length(P.kv, head)), min(P.row_slots, P.new_slots));
    for (uint slot = P.begin + gl_WorkGroupID.x; slot < end; slot += gl_NumWorkGroups.x) {
        const int row = InI32(P.row).v[P.row_offset + head * P.row_stride + slot];
        const uint64_t key = k_row(P.kv, head, slot);
        if (row < 0 || uint(row) >= P.rope.rows || key == 0ul) continue;
        if (P.source != 0ul)
            load_head(kF32, at_row(P.source, P.source_at, head, slot - P.begin), P.kv.k_dim);
        else
            load_head(P.kv.k_type, key, P.kv.k_dim);
        rotate_head(P.rope, uint(row), 1.0);
        store_head(P.kv.k_type, key, P.kv.k_dim);
        if (gl_LocalInvocationIndex == 0u && slot < P.kv.positions_slots)
            I32(position_at(P.kv, head, slot)).v[0] =
                InI32(P.new_positions).v[P.new_offset + head * P.new_stride + slot];
    }
}

#endif
