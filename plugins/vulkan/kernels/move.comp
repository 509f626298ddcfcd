// The ops copy, transpose and zero, in units of 4, 2 or 1 bytes. With -DCAST: cast between float
// types, and from blocks. With -DCAST_BLOCKS: cast to blocks.
#version 460
#define PARAMS MoveParams
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#ifdef CAST_BLOCKS
#include "math.glsl"
#include "quantize.glsl"
#endif

// for copies, the bytes of a unit; for casts, the source type
layout(constant_id = 1) const uint FROM = 4;
layout(constant_id = 2) const uint TO = 4;

uint index_of(Tensor t, uint row) {
    const uint k = row % P.out_at.shape[2];
    row /= P.out_at.shape[2];
    const uint j = row % P.out_at.shape[1], i = row / P.out_at.shape[1];
    return t.offset + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
}

uint64_t unit_of(uint type) { return type == kF32 ? 4ul : 2ul; }

void main() {
    const uint rows = P.out_at.shape[0] * P.out_at.shape[1] * P.out_at.shape[2];
    for (uint r = gl_WorkGroupID.y; r < rows; r += gl_NumWorkGroups.y) {
        const uint x_index = index_of(P.x_at, r), y_index = index_of(P.out_at, r);
#ifdef CAST
        const uint64_t x = P.x + unit_of(FROM) * uint64_t(x_index),
                       y = P.to + unit_of(TO) * uint64_t(y_index);
        for (uint e = gl_GlobalInvocationID.x; e < P.out_at.n;
             e += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
            store_bits(TO, y, e, load_bits(FROM, x, e));
#elif defined(CAST_BLOCKS)
        InF32 x = InF32(at4(P.x, x_index));
        for (uint b = gl_GlobalInvocationID.x; b < P.out_at.n / 32u;
             b += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
            float values[32];
            for (uint e = 0; e < 32; ++e)
                values[e] = x.v[b * 32u + e];
            store_block(TO,
                        P.to + 2ul * uint64_t(y_index) + uint64_t(b) * (TO == kQ8 ? 34ul : 18ul),
                        values);
        }
#else
        const uint64_t x = P.x + uint64_t(FROM) * uint64_t(x_index),
                       y = P.to + uint64_t(FROM) * uint64_t(y_index);
        for (uint e = gl_GlobalInvocationID.x; e < P.out_at.n;
             e += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
            if (FROM == 4u)
                U32(y).v[e] = P.x == 0ul ? 0u : InU32(x).v[e];
            else if (FROM == 2u)
                U16(y).v[e] = uint16_t(P.x == 0ul ? 0u : uint(InU16(x).v[e]));
            else
                U8(y).v[e] = uint8_t(P.x == 0ul ? 0u : uint(InU8(x).v[e]));
        }
#endif
    }
}
