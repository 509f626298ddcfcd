// The ops matmul and embed, in four variants. linear_vec is for few rows of x: a team of
// invocations computes some rows of W. linear_tile is for many rows of x: it uses tiles in shared
// memory, and weights are dequantized when a tile is loaded. linear_matrix is like linear_tile, in
// f16 with cooperative matrices. embed is the op embed.
#version 460
#ifdef EMBED
#define PARAMS EmbedParams
#else
#define PARAMS LinearParams
#endif
#extension GL_GOOGLE_include_directive : require
#ifdef LINEAR_MATRIX
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#include "types.glsl"
#ifdef LINEAR_VEC
#include "reduce.glsl"
#endif

layout(constant_id = 1) const uint TYPE = 0;
// 1: rows are aligned to 16 bytes, and blocks are split into codes and scales. 0: rows are as in
// the file.
layout(constant_id = 2) const uint PREPARED = 0;

float weight_value(uint64_t row, uint64_t scales, uint i) {
    if (PREPARED == 0u || TYPE < kQ8) return load_value(TYPE, row, i);
    const float d = scale_of(uint(InU16(scales).v[i >> 5]));
    if (TYPE == kQ8) return float(code_of(uint(InU8(row).v[i]))) * d;
    const uint byte = uint(InU8(row).v[(i >> 5) * 16u + (i & 15u)]);
    return float(int((i & 16u) == 0u ? byte & 15u : byte >> 4) - 8) * d;
}

#ifdef EMBED

void main() {
    for (uint t = gl_WorkGroupID.x; t < P.m; t += gl_NumWorkGroups.x) {
        const int id = InI32(P.ids).v[t];
        const bool there = id >= 0 && uint(id) < P.rows;
        const uint64_t row = P.w + uint64_t(uint(id)) * P.w_stride;
        const uint64_t scales = P.scales + uint64_t(uint(id)) * P.scales_stride;
        F32 to = F32(P.to + uint64_t(t) * P.out_stride);
        for (uint i = gl_LocalInvocationIndex; i < P.cols; i += gl_WorkGroupSize.x) {
            float value = nan();
            if (there) value = weight_value(row, scales, i) * P.factor;
            to.v[i] = value;
        }
    }
}

#else

void store_out(uint i, uint j, float value) {
    F32 to = F32(P.to + uint64_t(i) * P.out_stride);
    if (P.bias != 0ul) value += InF32(P.bias).v[j];
    if (P.accumulate != 0u) value += to.v[j];
    to.v[j] = value;
}

#endif

#ifdef LINEAR_VEC

layout(constant_id = 3) const uint ROWS = 4; // number of rows of W that a team computes at a time
layout(constant_id = 4) const uint X_VEC = 0; // 1: four elements of x can be loaded at once

// A team is the group of invocations that share rows of W. With subgroup sums it is a subgroup,
// otherwise the whole workgroup.
#ifdef KEEL_SUBGROUPS
// gl_SubgroupSize can be larger than the real number of invocations
#define TEAM_SIZE subgroupAdd(1u)
#define TEAM_LANE gl_SubgroupInvocationID
#define TEAM_ID (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID)
#define TEAMS (gl_NumWorkGroups.x * gl_NumSubgroups)
#define team_sum(x) subgroupAdd(x)
#else
#define TEAM_SIZE gl_WorkGroupSize.x
#define TEAM_LANE gl_LocalInvocationIndex
#define TEAM_ID gl_WorkGroupID.x
#define TEAMS gl_NumWorkGroups.x
#define team_sum(x) group_sum(x)
#endif

vec4 x4(uint64_t x, uint i) { // i is a multiple of 4
    if (X_VEC != 0u) return InF32x4(x).v[i >> 2];
    InF32 from = InF32(x);
    return vec4(from.v[i], from.v[i + 1u], from.v[i + 2u], from.v[i + 3u]);
}
vec4 bytes4(uint word) {
    return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8),
                bitfieldExtract(int(word), 16, 8), bitfieldExtract(int(word), 24, 8));
}
vec4 nibbles4(uint word) { // the low nibbles of the four bytes
    return vec4(bitfieldExtract(word, 0, 4), bitfieldExtract(word, 8, 4),
                bitfieldExtract(word, 16, 4), bitfieldExtract(word, 24, 4)) -
           8.0;
}

// Number of elements of a row that an invocation handles at a time.
const uint CHUNK = TYPE == kF32 ? 4u : TYPE < kQ8 ? 8u : 16u;

void main() {
    const uint i = gl_WorkGroupID.y;
    const uint64_t x = P.x + uint64_t(i) * P.x_stride;
    const uint chunks = PREPARED != 0u ? P.k / CHUNK : 0u, team = TEAM_SIZE;
    for (uint first = TEAM_ID * ROWS; first < P.n; first += TEAMS * ROWS) {
        float sum[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            sum[r] = 0.0;
        for (uint c = TEAM_LANE; c < chunks; c += team) {
            // The index in x. A chunk of q4_0 has two parts: 8 elements, and the 8 elements that
            // are 16 places after these.
            const uint at = TYPE == kQ4 ? (c >> 1) * 32u + (c & 1u) * 8u : c * CHUNK;
            vec4 xs[4];
            xs[0] = x4(x, at);
            if (CHUNK >= 8u) xs[1] = x4(x, at + 4u);
            if (CHUNK >= 16u) {
                xs[2] = x4(x, at + (TYPE == kQ4 ? 16u : 8u));
                xs[3] = x4(x, at + (TYPE == kQ4 ? 20u : 12u));
            }
            [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                const uint j = min(first + r, P.n - 1u);
                const uint64_t row = P.w + uint64_t(j) * P.w_stride;
                if (TYPE == kF32) {
                    sum[r] += dot(InF32x4(row).v[c], xs[0]);
                } else if (TYPE == kF16) {
                    const uvec4 w = InU32x4(row).v[c];
                    sum[r] += dot(vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)), xs[0]) +
                              dot(vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w)), xs[1]);
                } else if (TYPE == kBf16) {
                    const uvec4 w = InU32x4(row).v[c];
                    const vec4 even = uintBitsToFloat(w << 16),
                               odd = uintBitsToFloat(w & 0xFFFF0000u);
                    sum[r] += dot(vec4(even.x, odd.x, even.y, odd.y), xs[0]) +
                              dot(vec4(even.z, odd.z, even.w, odd.w), xs[1]);
                } else if (TYPE == kQ8) {
                    const uvec4 w = InU32x4(row).v[c];
                    const float d =
                        scale_of(uint(InU16(P.scales + uint64_t(j) * P.scales_stride).v[c >> 1]));
                    sum[r] += d * (dot(bytes4(w.x), xs[0]) + dot(bytes4(w.y), xs[1]) +
                                   dot(bytes4(w.z), xs[2]) + dot(bytes4(w.w), xs[3]));
                } else {
                    const uvec2 w = InU32x2(row).v[c];
                    const float d =
                        scale_of(uint(InU16(P.scales + uint64_t(j) * P.scales_stride).v[c >> 1]));
                    sum[r] += d * (dot(nibbles4(w.x), xs[0]) + dot(nibbles4(w.y), xs[1]) +
                                   dot(nibbles4(w.x >> 4), xs[2]) + dot(nibbles4(w.y >> 4), xs[3]));
                }
            }
        }
        for (uint e = chunks * CHUNK + TEAM_LANE; e < P.k; e += team) {
            const float value = InF32(x).v[e];
            [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                const uint j = min(first + r, P.n - 1u);
                sum[r] += value * weight_value(P.w + uint64_t(j) * P.w_stride,
                                               P.scales + uint64_t(j) * P.scales_stride, e);
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            const float total = team_sum(sum[r]);
            if (TEAM_LANE == 0u && first + r < P.n) store_out(i, first + r, total);
        }
    }
}

#endif

#if defined(LINEAR_TILE) || defined(LINEAR_MATRIX)

// Loads eight elements of row j, beginning with column k. k is a multiple of 8. Elements after the
// last column or the last row are zero.
void load8(uint j, uint k, uint64_t row, uint64_t scales, out float w[8]) {
    [[unroll]] for (uint e = 0; e < 8; ++e)
        w[e] = 0.0;
    if (j >= P.n || k >= P.k) return;
    if (PREPARED == 0u || k + 8u > P.k) {
        for (uint e = 0; e < 8 && k + e < P.k; ++e)
            w[e] = weight_value(row, scales, k + e);
    } else if (TYPE == kF32) {
        const vec4 a = InF32x4(row).v[k >> 2], b = InF32x4(row).v[(k >> 2) + 1u];
        [[unroll]] for (uint e = 0; e < 4; ++e)
            w[e] = a[e], w[e + 4] = b[e];
    } else if (TYPE == kF16) {
        const uvec4 a = InU32x4(row).v[k >> 3];
        [[unroll]] for (uint e = 0; e < 4; ++e) {
            const vec2 pair = unpackHalf2x16(a[e]);
            w[2 * e] = pair.x, w[2 * e + 1] = pair.y;
        }
    } else if (TYPE == kBf16) {
        const uvec4 a = InU32x4(row).v[k >> 3];
        [[unroll]] for (uint e = 0; e < 4; ++e) {
            w[2 * e] = uintBitsToFloat(a[e] << 16);
            w[2 * e + 1] = uintBitsToFloat(a[e] & 0xFFFF0000u);
        }
    } else {
        const float d = scale_of(uint(InU16(scales).v[k >> 5]));
        const uvec2 a = InU32x2(row).v[TYPE == kQ8 ? k >> 3 : (k >> 5) * 2u + ((k >> 3) & 1u)];
        const uint shift = (k & 16u) >> 2;
        [[unroll]] for (uint e = 0; e < 8; ++e) {
            const int word = int(a[e >> 2]), bit = int(e & 3u) * 8;
            w[e] = d * float(TYPE == kQ8 ? bitfieldExtract(word, bit, 8)
                                         : int(bitfieldExtract(uint(word) >> shift, bit, 4)) - 8);
        }
    }
}

#endif

#ifdef LINEAR_TILE

layout(constant_id = 3) const uint BM = 64; // number of rows of x in a tile: 16 or 64
const uint BN = 64, BK = 16, THREADS = 128;
const uint TM = BM / 8; // each invocation computes TM x 4 results
const uint X_PITCH = BM + 1, W_PITCH = BN + 1;
shared float x_tile[BK * X_PITCH], w_tile[BK * W_PITCH];

void main() {
    const uint t = gl_LocalInvocationIndex, tn = t % 16u, tm = t / 16u;
    const uint tiles_n = (P.n + BN - 1u) / BN;
    for (uint tile = gl_WorkGroupID.x; tile < tiles_n; tile += gl_NumWorkGroups.x) {
        const uint n0 = tile * BN, m0 = gl_WorkGroupID.y * BM;
        float sum[TM * 4];
        [[unroll]] for (uint s = 0; s < TM * 4; ++s)
            sum[s] = 0.0;
        const uint j = n0 + t / 2u;
        const uint64_t row = P.w + uint64_t(j) * P.w_stride,
                       scales = P.scales + uint64_t(j) * P.scales_stride;
        for (uint k0 = 0; k0 < P.k; k0 += BK) {
            float w[8];
            load8(j, k0 + (t & 1u) * 8u, row, scales, w);
            barrier();
            [[unroll]] for (uint e = 0; e < 8; ++e)
                w_tile[((t & 1u) * 8u + e) * W_PITCH + t / 2u] = w[e];
            for (uint s = t; s < BM * BK; s += THREADS) {
                const uint k = k0 + s % BK, i = m0 + s / BK;
                x_tile[s % BK * X_PITCH + s / BK] =
                    k < P.k && i < P.m ? InF32(P.x + uint64_t(i) * P.x_stride).v[k] : 0.0;
            }
            barrier();
            for (uint k = 0; k < BK; ++k) {
                float b[4];
                [[unroll]] for (uint c = 0; c < 4; ++c)
                    b[c] = w_tile[k * W_PITCH + tn + 16u * c];
                [[unroll]] for (uint r = 0; r < TM; ++r) {
                    const float a = x_tile[k * X_PITCH + tm + 8u * r];
                    [[unroll]] for (uint c = 0; c < 4; ++c)
                        sum[r * 4 + c] = fma(a, b[c], sum[r * 4 + c]);
                }
            }
        }
        [[unroll]] for (uint r = 0; r < TM; ++r) {
            [[unroll]] for (uint c = 0; c < 4; ++c) {
                const uint i = m0 + tm + 8u * r, jj = n0 + tn + 16u * c;
                if (i < P.m && jj < P.n) store_out(i, jj, sum[r * 4 + c]);
            }
        }
    }
}

#endif

#ifdef LINEAR_MATRIX

// Four subgroups compute a tile of 64 x 64 results. Each subgroup computes 32 x 32 results as two
// by two matrices.
const uint TILE = 64, BK = 32, THREADS = 128, PITCH = BK + 8;
shared float16_t x_tile[TILE * PITCH], w_tile[TILE * PITCH];
shared float result[TILE * TILE];

void main() {
    const uint t = gl_LocalInvocationIndex;
    const uint tiles_n = (P.n + TILE - 1u) / TILE, m0 = gl_WorkGroupID.y * TILE;
    const uint mine_m = gl_SubgroupID / 2u * 32u, mine_n = gl_SubgroupID % 2u * 32u;
    for (uint tile = gl_WorkGroupID.x; tile < tiles_n; tile += gl_NumWorkGroups.x) {
        const uint n0 = tile * TILE;
        fcoopmatNV<32, gl_ScopeSubgroup, 16, 16> sum[4];
        [[unroll]] for (uint s = 0; s < 4; ++s)
            sum[s] = fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>(0.0);
        const uint j = n0 + t / 2u;
        const uint64_t row = P.w + uint64_t(j) * P.w_stride,
                       scales = P.scales + uint64_t(j) * P.scales_stride;
        for (uint k0 = 0; k0 < P.k; k0 += BK) {
            barrier();
            [[unroll]] for (uint part = 0; part < 2; ++part) {
                const uint k = (t & 1u) * 16u + part * 8u;
                float w[8];
                load8(j, k0 + k, row, scales, w);
                [[unroll]] for (uint e = 0; e < 8; ++e)
                    w_tile[t / 2u * PITCH + k + e] = float16_t(w[e]);
            }
            for (uint s = t; s < TILE * BK; s += THREADS) {
                const uint k = k0 + s % BK, i = m0 + s / BK;
                x_tile[s / BK * PITCH + s % BK] = float16_t(
                    k < P.k && i < P.m ? InF32(P.x + uint64_t(i) * P.x_stride).v[k] : 0.0);
            }
            barrier();
            [[unroll]] for (uint k = 0; k < BK; k += 16) {
                fcoopmatNV<16, gl_ScopeSubgroup, 16, 16> a[2], b[2];
                [[unroll]] for (uint c = 0; c < 2; ++c) {
                    coopMatLoadNV(a[c], x_tile, (mine_m + 16u * c) * PITCH + k, PITCH, false);
                    // This matrix is K x N: its columns are rows of W.
                    coopMatLoadNV(b[c], w_tile, (mine_n + 16u * c) * PITCH + k, PITCH, true);
                }
                [[unroll]] for (uint s = 0; s < 4; ++s)
                    sum[s] = coopMatMulAddNV(a[s / 2u], b[s % 2u], sum[s]);
            }
        }
        barrier();
        [[unroll]] for (uint s = 0; s < 4; ++s) {
            const uint at = (mine_m + s / 2u * 16u) * TILE + mine_n + s % 2u * 16u;
            coopMatStoreNV(sum[s], result, at, TILE, false);
        }
        barrier();
        for (uint s = t; s < TILE * TILE; s += THREADS) {
            const uint i = m0 + s / TILE, jj = n0 + s % TILE;
            if (i < P.m && jj < P.n) store_out(i, jj, result[s]);
        }
    }
}

#endif
