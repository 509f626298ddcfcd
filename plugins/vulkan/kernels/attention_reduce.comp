// Attention scores. Each invocation handles one slot of a KV head. The first pass has computed the
// max and the sum of each row. With these two numbers, the invocation computes the probabilities of
// the contributing queries again, and reduces them to one number. It can also reduce logits.
#version 460
#define PARAMS AttentionParams
#define PARAMS_IN_MEMORY
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "math.glsl"
#include "kv.glsl"
#include "attention.glsl"

const uint kNone = 0, kSum = 1, kMean = 2, kMax = 3; // the values of keel_reduce

float larger(float a, float b) { return is_nan(a) || a > b ? a : b; }

void put(uint row, uint slot, float value) {
    F32 to = F32(at4(P.scores, P.scores_offset + row * P.scores_stride + slot));
    if (P.accumulate != 0u)
        value = P.reduce_queries == kMax ? larger(to.v[0], value) : to.v[0] + value;
    to.v[0] = value;
}

float dot4(InF32 q, uint64_t key, uint e) {
    return dot(load_k4(key, e), vec4(q.v[e], q.v[e + 1u], q.v[e + 2u], q.v[e + 3u]) * P.scale);
}

float logit_of(uint head, uint i, uint h, uint64_t key) {
    InF32 q = InF32(at_row(P.q, P.q_at, i, h));
    float sum = 0.0;
    uint whole = 0u;
    for (; whole + 16u <= P.kv.k_dim; whole += 16u) {
        // This sum is unrolled, because lavapipe limits the number of loop rounds.
        sum += dot4(q, key, whole) + dot4(q, key, whole + 4u) + dot4(q, key, whole + 8u) +
               dot4(q, key, whole + 12u);
    }
    for (; whole + 4u <= P.kv.k_dim; whole += 4u)
        sum += dot4(q, key, whole);
    for (uint e = P.kv.k_dim & ~3u; e < P.kv.k_dim; ++e)
        sum += load_value(K_TYPE, key, e) * q.v[e] * P.scale;
    return capped(sum);
}

// Returns the probabilities of a slot, reduced over the queries of one query head.
float reduced(uint head, uint g, uint slot, uint length, uint64_t key, float weight) {
    float value = P.reduce_queries == kMax ? -kInf : 0.0;
    uint count = 0u;
    for (uint i = P.first; i < P.m; ++i) {
        const bool seen = sees(head, i, slot, length);
        if (!seen && P.logits != 0u) continue;
        float one = 0.0;
        if (seen) {
            one = logit_of(head, i, head * P.group + g, key);
            if (P.logits == 0u) {
                InF32 stats = InF32(at4(P.stats, 2u * (head * P.m * P.group + i * P.group + g)));
                one = exp_(one - stats.v[0]) * stats.v[1];
            }
            one *= weight;
        }
        value = P.reduce_queries == kMax ? larger(value, one) : value + one;
        ++count;
    }
    if (P.reduce_queries != kMean) return value;
    return count == 0u ? 0.0 : value / float(count);
}

void main() {
    const uint head = gl_WorkGroupID.y, length = kv_length(P.kv, head);
    for (uint slot = gl_GlobalInvocationID.x; slot < length;
         slot += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        const uint64_t key = k_row(P.kv, head, slot);
        const bool outside = key == 0ul || (P.ranged != 0u && !in_ranges(slot));
        float weight = 1.0;
        if (P.weights != 0ul && !outside)
            weight = InF32(at4(P.weights, P.weights_offset + head * P.weights_stride + slot)).v[0];
        float total = 0.0;
        for (uint g = 0; g < P.group; ++g) {
            const float value = outside ? 0.0 : reduced(head, g, slot, length, key, weight);
            if (P.reduce_group == kNone)
                put(head * P.group + g, slot, value);
            else if (g == 0u)
                total = value;
            else
                total = P.reduce_group == kMax ? larger(total, value) : total + value;
        }
        if (P.reduce_group == kMean) total /= float(P.group);
        if (P.reduce_group != kNone) put(head, slot, total);
    }
}
