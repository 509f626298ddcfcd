// The ops add, add_bias, scale and scaled_add. With -DGATE: silu_mul and gelu_mul.
#version 460
#ifdef GATE
#define PARAMS GateParams
#else
#define PARAMS ElementwiseParams
#endif
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "math.glsl"

layout(constant_id = 1) const uint KIND = 0;

#ifdef GATE

layout(constant_id = 2) const uint INTERLEAVED = 0;

float activation(float g) {
    if (KIND == 0u) return g / (1.0 + exp_(-g));
    if (KIND == 1u) return 0.5 * g * one_plus_erf(g * 0.70710678);
    return 0.5 * g * (1.0 + tanh_(0.79788456 * (g + 0.044715 * g * g * g)));
}

void main() {
    for (uint r = gl_WorkGroupID.y; r < P.m; r += gl_NumWorkGroups.y) {
        InF32 gate = InF32(at_row(P.gate, P.gate_at, 0, r)),
              up = InF32(at_row(P.up, P.up_at, 0, r));
        F32 y = F32(at_row(P.to, P.out_at, 0, r));
        for (uint e = gl_GlobalInvocationID.x; e < P.n;
             e += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
            float value = activation(gate.v[INTERLEAVED != 0u ? 2u * e : e]);
            if (INTERLEAVED != 0u)
                value *= gate.v[2u * e + 1u];
            else if (P.up != 0ul)
                value *= up.v[e];
            y.v[e] = value;
        }
    }
}

#else

uint64_t row_of(uint64_t base, Tensor t, uint row) {
    const uint k = row % P.out_at.shape[2];
    row /= P.out_at.shape[2];
    const uint j = row % P.out_at.shape[1], i = row / P.out_at.shape[1];
    return at4(base, t.offset + i * t.stride[0] + j * t.stride[1] + k * t.stride[2]);
}

void main() { // KIND is 0 for add, 1 for add_bias, 2 for scale, 3 for scaled_add
    const uint rows = P.out_at.shape[0] * P.out_at.shape[1] * P.out_at.shape[2];
    for (uint r = gl_WorkGroupID.y; r < rows; r += gl_NumWorkGroups.y) {
        InF32 a = InF32(row_of(P.a, P.a_at, r)), b = InF32(row_of(P.b, P.b_at, r));
        F32 y = F32(row_of(P.to, P.out_at, r));
        for (uint e = gl_GlobalInvocationID.x; e < P.out_at.n;
             e += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
            if (KIND <= 1u)
                y.v[e] = a.v[e] + b.v[e];
            else if (KIND == 2u)
                y.v[e] = a.v[e] * P.factor;
            else
                y.v[e] += a.v[e] * P.factor;
        }
    }
}

#endif
