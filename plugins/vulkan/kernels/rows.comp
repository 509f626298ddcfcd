// The ops softmax, argmax_rows (-DARGMAX) and top_k_rows (-DTOP_K). Each workgroup handles one row.
#version 460
#define PARAMS RowsParams
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "math.glsl"
#include "reduce.glsl"

void main() {
    const uint me = gl_LocalInvocationIndex, n = P.n;
    for (uint r = gl_WorkGroupID.x; r < P.rows; r += gl_NumWorkGroups.x) {
        InF32 x = InF32(at_row(P.x, P.x_at, 0, r));
        uint key = 0u, place = 0xFFFFFFFFu; // best element of this invocation
#ifdef ARGMAX
        bool broken = false;
        for (uint e = me; e < n; e += gl_WorkGroupSize.x) {
            const uint other = order_key(x.v[e]);
            broken = broken || !is_finite(x.v[e]);
            if (other > key) key = other, place = e;
        }
        const uint best = group_max(broken ? 0xFFFFFFFFu : key);
        place = group_min(key == best ? place : 0xFFFFFFFFu);
        if (me == 0u)
            I32(at_row(P.index, P.index_at, 0, r)).v[0] =
                best == 0xFFFFFFFFu || n == 0u ? -1 : int(place);
#elif defined(TOP_K)
        // The last element that was taken. The other candidates are smaller. Or they are equal and
        // at a later place.
        uint above = 0xFFFFFFFFu, above_at = 0u;
        bool broken = false, all = true;
        if (P.first != 0u) {
            const int last = InI32(at_row(P.index, P.index_at, 0, r)).v[P.first - 1u];
            all = false;
            broken = last < 0;
            above_at = uint(max(last, 0));
            above = order_key(x.v[above_at]);
        }
        for (uint e = me; e < n; e += gl_WorkGroupSize.x) {
            const uint other = order_key(x.v[e]);
            const bool below = all || other < above || (other == above && e > above_at);
            if (below && other > key) key = other, place = e;
        }
        for (uint k = P.first; k < P.k; ++k) {
            const uint best = group_max(key), taken = group_min(key == best ? place : 0xFFFFFFFFu);
            // NaN is larger than all numbers in this order, so it is taken first
            broken = broken || best == 0xFFFFFFFFu;
            if (me == 0u) {
                I32(at_row(P.index, P.index_at, 0, r)).v[k] = broken ? -1 : int(taken);
                U32(at_row(P.values, P.values_at, 0, r)).v[k] =
                    broken ? 0x7FC00000u : floatBitsToUint(x.v[taken]);
            }
            if (broken || place != taken) continue;
            // The invocation whose element was taken searches for its next element. This is an
            // equal element after `taken`, or if there is none, a smaller element.
            const uint last = key;
            key = 0u, place = 0xFFFFFFFFu;
            for (uint e = me; e < n; e += gl_WorkGroupSize.x) {
                const uint other = order_key(x.v[e]);
                if ((other < last || (other == last && e > taken)) && other > key)
                    key = other, place = e;
            }
        }
#else
        for (uint e = me; e < n; e += gl_WorkGroupSize.x)
            key = max(key, order_key(x.v[e]));
        const float largest = key_value(group_max(key));
        F32 y = F32(at_row(P.values, P.values_at, 0, r));
        // if all values of a row are -inf, the result is zeros
        const bool nothing = largest == -kInf;
        float sum = 0.0;
        for (uint e = me; e < n; e += gl_WorkGroupSize.x) {
            const float value = nothing ? 0.0 : exp_(x.v[e] - largest);
            y.v[e] = value;
            sum += value;
        }
        sum = group_sum(sum);
        const float factor = nothing ? 0.0 : 1.0 / sum;
        for (uint e = me; e < n; e += gl_WorkGroupSize.x)
            y.v[e] *= factor;
#endif
    }
}
