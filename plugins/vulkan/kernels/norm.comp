// The ops rms_norm, add_rms_norm and layer_norm. Each workgroup handles one row.
#version 460
#define PARAMS NormParams
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"

layout(constant_id = 1) const uint KIND = 0; // 0: rms_norm, 1: add_rms_norm, 2: layer_norm

void main() {
    for (uint r = gl_WorkGroupID.x; r < P.rows; r += gl_NumWorkGroups.x) {
        const uint i = r / P.inner, j = r % P.inner, n = P.n;
        InF32 x = InF32(at_row(P.x, P.x_at, i, j));
        F32 residual = F32(at_row(P.residual, P.residual_at, i, j));
        F32 y = F32(at_row(P.to, P.out_at, i, j));
        float mean = 0.0, sum = 0.0;
        if (KIND == 2u) {
            for (uint e = gl_LocalInvocationIndex; e < n; e += gl_WorkGroupSize.x)
                mean += x.v[e];
            mean = group_sum(mean) / float(n);
        }
        // Each invocation reads only elements that it wrote itself, so no barrier is needed.
        for (uint e = gl_LocalInvocationIndex; e < n; e += gl_WorkGroupSize.x) {
            float value = x.v[e] - mean;
            if (KIND == 1u) {
                value += residual.v[e];
                residual.v[e] = value;
            }
            sum += value * value;
        }
        sum = group_sum(sum);
        const float factor = 1.0 / sqrt(sum / float(n) + P.eps);
        for (uint e = gl_LocalInvocationIndex; e < n; e += gl_WorkGroupSize.x) {
            float value =
                (KIND == 1u ? residual.v[e] : x.v[e] - mean) * factor * InF32(P.weight).v[e];
            if (KIND == 2u && P.bias != 0ul) value += InF32(P.bias).v[e];
            y.v[e] = value;
        }
    }
}
