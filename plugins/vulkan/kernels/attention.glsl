// Code that the passes of attention share: logits, and the test whether a query sees a slot. Row r
// of a KV head is query r / group of query head r % group. So K and V are read once for all query
// heads of a KV head.
layout(constant_id = 1) const uint K_TYPE = 0;
// 1: K is loaded by 16 bytes (f32) or 8 bytes (f16, bf16).
layout(constant_id = 2) const uint BY_FOURS = 0;

vec4 load_k4(uint64_t row, uint e) {
    // e is a multiple of 4. Elements after the end of the head are never read.
    if (K_TYPE == kF32) {
        if (BY_FOURS != 0u) return InF32x4(row).v[e >> 2];
        InF32 k = InF32(row);
        return vec4(k.v[e], k.v[e + 1u], k.v[e + 2u], k.v[e + 3u]);
    }
    if (K_TYPE == kF16) {
        if (BY_FOURS != 0u) {
            const uvec2 w = InU32x2(row).v[e >> 2];
            return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
        }
        return vec4(load_value(kF16, row, e), load_value(kF16, row, e + 1u),
                    load_value(kF16, row, e + 2u), load_value(kF16, row, e + 3u));
    }
    if (K_TYPE == kBf16) {
        InU16 k = InU16(row);
        return uintBitsToFloat(
            uvec4(uint(k.v[e]), uint(k.v[e + 1u]), uint(k.v[e + 2u]), uint(k.v[e + 3u])) << 16);
    }
    const uint j = e & 31u;
    if (K_TYPE == kQ8) {
        const uint64_t block = row + 34ul * uint64_t(e >> 5);
        InU16 words = InU16(block);
        const uint a = uint(words.v[1u + (j >> 1)]), b = uint(words.v[2u + (j >> 1)]);
        return scale_of(uint(words.v[0])) *
               vec4(code_of(a & 255u), code_of(a >> 8), code_of(b & 255u), code_of(b >> 8));
    }
    InU16 words = InU16(row + 18ul * uint64_t(e >> 5));
    const uint place = (j & 15u) >> 1, shift = j < 16u ? 0u : 4u;
    const uint a = uint(words.v[1u + place]) >> shift, b = uint(words.v[2u + place]) >> shift;
    return scale_of(uint(words.v[0])) *
           (vec4(a & 15u, (a >> 8) & 15u, b & 15u, (b >> 8) & 15u) - 8.0);
}

bool in_ranges(uint slot) {
    for (uint r = 0; r < P.n_ranges; ++r) {
        InI32 range = InI32(at4(P.ranges, P.ranges_offset + r * P.ranges_stride));
        if (int(slot) >= range.v[0] && int(slot) < range.v[1]) return true;
    }
    return false;
}

// Returns true if query i sees the slot, in a head with `length` slots. Ranges are checked
// elsewhere.
bool sees(uint head, uint i, uint slot, uint length) {
    if (P.causal != 0u && int(slot) > int(length) - int(P.m) + int(i)) return false;
    if (P.windowed != 0u) {
        const int position = InI32(position_at(P.kv, head, slot)).v[0];
        const uint sequence = sequence_of(P.kv, head), own = own_head(P.kv, head);
        if (given_position(P.q_positions, P.q_positions_at, sequence + i, own) - position >=
            P.window)
            return false;
    }
    return true;
}

float capped(float logit) {
    return P.cap != 0.0 ? P.cap * tanh_(logit / P.cap) : logit;
}
