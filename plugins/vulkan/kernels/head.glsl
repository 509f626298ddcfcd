// The row of one head in shared memory. A workgroup fills it, rotates it and stores it. HEAD_ROOM
// (constant 1) is at least the size of the head.
layout(constant_id = 1) const uint HEAD_ROOM = 128;
shared float head_row[HEAD_ROOM];

void load_head(uint type, uint64_t from, uint dim) {
    barrier();
    for (uint e = gl_LocalInvocationIndex; e < dim; e += gl_WorkGroupSize.x)
        head_row[e] = load_value(type, from, e);
    barrier();
}

uint rope_row(Rope rope, int position) {
    const int row = position % int(rope.rows);
    return uint(row < 0 ? row + int(rope.rows) : row);
}

// Rotates the head by row `row` of the tables. If `sign` is -1, it rotates back. Each invocation
// handles one pair at a time.
void rotate_head(Rope rope, uint row, float sign) {
    InF32 cos_row = InF32(at4(rope.cos, rope.cos_offset + row * rope.cos_stride));
    InF32 sin_row = InF32(at4(rope.sin, rope.sin_offset + row * rope.sin_stride));
    for (uint i = gl_LocalInvocationIndex; i < rope.half_rot; i += gl_WorkGroupSize.x) {
        const uint a = rope.interleaved != 0u ? 2u * i : i,
                   b = rope.interleaved != 0u ? 2u * i + 1u : i + rope.half_rot;
        const float x = head_row[a], y = head_row[b], c = cos_row.v[i], s = sign * sin_row.v[i];
        head_row[a] = x * c - y * s;
        head_row[b] = y * c + x * s;
    }
    barrier();
}

void store_head_f32(uint64_t to, uint dim) {
    F32 row = F32(to);
    for (uint e = gl_LocalInvocationIndex; e < dim; e += gl_WorkGroupSize.x)
        row.v[e] = head_row[e];
}

#ifdef HEAD_STORES
// Stores the head as any type of the cache, rounded like the op `cast`.
void store_head(uint type, uint64_t to, uint dim) {
    if (type < kQ8) {
        for (uint e = gl_LocalInvocationIndex; e < dim; e += gl_WorkGroupSize.x)
            store_bits(type, to, e, floatBitsToUint(head_row[e]));
        return;
    }
    for (uint b = gl_LocalInvocationIndex; b < dim / 32u; b += gl_WorkGroupSize.x) {
        float values[32];
        for (uint e = 0; e < 32; ++e)
            values[e] = head_row[b * 32u + e];
        store_block(type, to + uint64_t(b) * (type == kQ8 ? 34ul : 18ul), values);
    }
}
#endif
