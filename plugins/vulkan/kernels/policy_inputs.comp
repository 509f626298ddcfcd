// The ops key_project and value_norms (-DKEYS), key_sum (-DKEY_SUM) and query_stats
// (-DQUERY_STATS).
#version 460
#ifdef QUERY_STATS
#define PARAMS StatsParams
#else
#define PARAMS KeysParams
#define PARAMS_IN_MEMORY
#endif
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"

#ifdef KEYS

#include "kv.glsl"
#include "head.glsl"
#include "reduce.glsl"
layout(constant_id = 2) const uint VALUES = 0; // 1: norms of values; 0: keys
layout(constant_id = 3) const uint NORMS = 0;

// Each workgroup handles one slot of a head.
void main() {
    const uint head = gl_WorkGroupID.y, end = min(min(P.end, kv_length(P.kv, head)), P.out_slots);
    const uint dim = VALUES != 0u ? P.kv.v_dim : P.kv.k_dim;
    for (uint slot = P.begin + gl_WorkGroupID.x; slot < end; slot += gl_NumWorkGroups.x) {
        const uint64_t from = VALUES != 0u ? v_row(P.kv, head, slot) : k_row(P.kv, head, slot);
        if (from == 0ul) continue;
        load_head(VALUES != 0u ? P.kv.v_type : P.kv.k_type, from, dim);
        if (P.rotate != 0u)
            rotate_head(P.rope, rope_row(P.rope, InI32(position_at(P.kv, head, slot)).v[0]), -1.0);
        F32 to = F32(at_row(P.to, P.out_at, head, slot));
        if (NORMS != 0u) {
            float sum = 0.0;
            for (uint e = gl_LocalInvocationIndex; e < dim; e += gl_WorkGroupSize.x)
                sum += P.l1 != 0u ? abs(head_row[e]) : head_row[e] * head_row[e];
            sum = group_sum(sum);
            if (gl_LocalInvocationIndex == 0u) to.v[0] = P.l1 != 0u ? sum : sqrt(sum);
            continue;
        }
        for (uint c = gl_LocalInvocationIndex; c < P.r; c += gl_WorkGroupSize.x) {
            float sum = P.projection == 0ul ? head_row[c] : 0.0;
            for (uint e = 0; e < dim && P.projection != 0ul; ++e)
                sum += head_row[e] *
                       InF32(at4(P.projection, P.projection_offset + e * P.projection_stride + c))
                           .v[0];
            to.v[c] = sum;
        }
    }
}

#elif defined(KEY_SUM)

#include "kv.glsl"
const uint LANES = 16; // number of elements of a key that a workgroup sums
shared float sums[gl_WorkGroupSize.x];

void main() {
    const uint me = gl_LocalInvocationIndex, head = gl_WorkGroupID.y,
               end = min(P.end, kv_length(P.kv, head));
    const uint stripes = gl_WorkGroupSize.x / LANES;
    for (uint e0 = gl_WorkGroupID.x * LANES; e0 < P.kv.k_dim; e0 += gl_NumWorkGroups.x * LANES) {
        const uint e = e0 + me % LANES;
        float sum = 0.0;
        for (uint slot = P.begin + me / LANES; slot < end && e < P.kv.k_dim; slot += stripes) {
            const uint64_t key = k_row(P.kv, head, slot);
            if (key == 0ul) continue;
            float value = load_value(P.kv.k_type, key, e);
            if (P.norms != 0ul) {
                const float norm = InF32(at4(P.norms, head * P.out_slots + slot)).v[0];
                if (norm == 0.0) continue;
                value /= norm;
            }
            sum += value;
        }
        barrier();
        sums[me] = sum;
        barrier();
        if (me < LANES && e < P.kv.k_dim) {
            for (uint s = 1; s < stripes; ++s)
                sum += sums[me + s * LANES];
            F32(at_row(P.to, P.out_at, 0, head)).v[e] = sum;
        }
    }
}

#else

// Each invocation computes one element of the second moments. Row `dim` is for the sums.
void main() {
    const uint h = gl_WorkGroupID.z;
    for (uint e = gl_WorkGroupID.y; e <= P.dim; e += gl_NumWorkGroups.y) {
        if (e < P.dim && P.second == 0ul) continue;
        for (uint f = gl_GlobalInvocationID.x; f < P.dim;
             f += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
            float sum = 0.0;
            for (uint i = 0; i < P.m; ++i) {
                InF32 q = InF32(at_row(P.q, P.q_at, i, h));
                sum += e < P.dim ? q.v[e] * q.v[f] : q.v[f];
            }
            if (e < P.dim)
                F32(at_row(P.second, P.second_at, h, e)).v[f] += sum;
            else
                F32(at_row(P.sum, P.sum_at, 0, h)).v[f] += sum;
        }
    }
}

#endif
