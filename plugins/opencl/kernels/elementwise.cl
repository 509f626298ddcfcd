// Activation functions and sums. Each work-item handles W elements of a row. Its second index is
// the row.
#define ACT_SILU 0u
#define ACT_GELU 1u
#define ACT_GELU_TANH 2u

static inline floatW activate(floatW g, uint act) {
    if (act == ACT_SILU) return g / (1.0f + exp(-g));
    if (act == ACT_GELU) return 0.5f * g * (1.0f + erf(g * 0.70710678118654752440f));
    // This uses 1 + tanh(u) = 2 / (1 + exp(-2u)).
    return g / (1.0f + exp(-1.59576912160573071176f * (g + 0.044715f * g * g * g)));
}

static inline float activate_one(float g, uint act) {
    if (act == ACT_SILU) return g / (1.0f + exp(-g));
    if (act == ACT_GELU) return 0.5f * g * (1.0f + erf(g * 0.70710678118654752440f));
    // This uses 1 + tanh(u) = 2 / (1 + exp(-2u)).
    return g / (1.0f + exp(-1.59576912160573071176f * (g + 0.044715f * g * g * g)));
}

// If `pairs` is set, `gate` holds gate and up alternately. If neither has_up nor pairs is set, only
// the activation function is computed.
__kernel void gate_mul(Floats gate, View gatev, Floats up, View upv, uint has_up, uint pairs,
                       uint act, __global float *out, View outv) {
    const uint begin = (uint)get_global_id(0) * W, row = (uint)get_global_id(1), n = outv.n;
    if (begin >= n || row >= outv.shape[2]) return;
    Floats g = gate + gatev.offset + (ulong)row * gatev.stride[2] + (pairs ? 2 : 1) * begin;
    Floats u = up + (has_up ? upv.offset + (ulong)row * upv.stride[2] + begin : 0);
    __global float *to = out + outv.offset + (ulong)row * outv.stride[2] + begin;
    if (begin + W <= n && !pairs) {
        const floatW y = activate(vloadW(0, g), act);
        vstoreW(has_up ? y * vloadW(0, u) : y, 0, to);
        return;
    }
    for (uint e = 0; e < min((uint)W, n - begin); ++e)
        to[e] = pairs ? activate_one(g[2 * e], act) * g[2 * e + 1]
                      : activate_one(g[e], act) * (has_up ? u[e] : 1.0f);
}

#define DO_ADD 0u
#define DO_ADD_BIAS 1u
#define DO_SCALE 2u
#define DO_SCALED_ADD 3u

__kernel void combine(Floats a, View av, Floats b, View bv, float factor, uint what,
                      __global float *out, View outv) {
    const uint begin = (uint)get_global_id(0) * W, row = (uint)get_global_id(1), n = outv.n;
    if (begin >= n || row >= outv.shape[0] * outv.shape[1] * outv.shape[2]) return;
    Floats x = a + row_at(av, row) + begin;
    __global float *to = out + row_at(outv, row) + begin;
    Floats y = what == DO_ADD        ? b + row_at(bv, row) + begin
               : what == DO_ADD_BIAS ? b + bv.offset + begin
                                     : to;
    if (begin + W <= n) {
        const floatW v = vloadW(0, x);
        vstoreW(what == DO_SCALE        ? v * factor
                : what == DO_SCALED_ADD ? vloadW(0, y) + factor * v
                                        : v + vloadW(0, y),
                0, to);
        return;
    }
    for (uint e = 0; e < n - begin; ++e)
        to[e] = what == DO_SCALE        ? x[e] * factor
                : what == DO_SCALED_ADD ? y[e] + factor * x[e]
                                        : x[e] + y[e];
}
