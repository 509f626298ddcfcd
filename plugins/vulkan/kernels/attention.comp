// Attention with an online softmax (flash attention). A tile of query rows loops over the slots. If
// the cache is long and the rows are few, the slots are split into parts. The variant -DMERGE
// combines the results of the parts. With OUTPUT 0, only the max and the softmax sum of each row
// are computed, for attention scores.
#version 460
#define PARAMS AttentionParams
#define PARAMS_IN_MEMORY
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "math.glsl"
#include "kv.glsl"

// Returns the index of the partial result of a row. The shape of all partial results is
// [head][part][row of all m * group]. A partial result has the max, the sum, a flag, and then the
// sums of values. The flag is not 0 if any slot was seen.
uint64_t part_at(uint head, uint part, uint row) {
    const uint64_t place =
        (uint64_t(head) * uint64_t(P.n_parts) + uint64_t(part)) * uint64_t(P.m * P.group) +
        uint64_t(row);
    return P.parts + 4ul * place * uint64_t(P.kv.v_dim + 3u);
}

// The token and the query head of row `row`. They are indices in q, out and lse.
uint token_at(uint head, uint row) { return sequence_of(P.kv, head) + row / P.group; }
uint head_at(uint head, uint row) { return own_head(P.kv, head) * P.group + row % P.group; }

// Stores the log-sum-exp of a row if the op requests it. For scores, also stores max and 1 / sum.
void store_facts(uint head, uint row, float largest, float sum) {
    const uint i = token_at(head, row), h = head_at(head, row);
    if (P.lse != 0ul) {
        float value = largest + log(sum);
        if (sum == 0.0) value = -kInf;
        F32(at_row(P.lse, P.lse_at, i, h)).v[0] = value;
    }
    if (P.stats != 0ul) {
        F32 stats = F32(at4(P.stats, 2u * (head * P.m * P.group + row)));
        stats.v[0] = largest;
        stats.v[1] = sum == 0.0 ? 0.0 : 1.0 / sum;
    }
}

#ifdef MERGE

#include "reduce.glsl"

layout(constant_id = 1) const uint OUTPUT = 1;

// The factors of some parts in the result of a row.
shared float factors[gl_WorkGroupSize.x];

float factor_of(InF32 part, float base) {
    return part.v[1] == 0.0 ? 0.0 : exp_(part.v[0] - base);
}

void main() {
    const uint head = gl_WorkGroupID.y, me = gl_LocalInvocationIndex, group = gl_WorkGroupSize.x;
    for (uint row = P.first * P.group + gl_WorkGroupID.x; row < P.m * P.group;
         row += gl_NumWorkGroups.x) {
        uint key = order_key(-kInf), seen = 0u;
        for (uint part = me; part < P.n_parts; part += group) {
            InF32 from = InF32(part_at(head, part, row));
            key = max(key, order_key(from.v[0]));
            if (from.v[2] != 0.0) seen = 1u;
        }
        const float largest = key_value(group_max(key));
        seen = group_max(seen);
        const float base = largest == -kInf ? 0.0 : largest;
        float sum = 0.0;
        for (uint part = me; part < P.n_parts; part += group) {
            InF32 from = InF32(part_at(head, part, row));
            const float factor = factor_of(from, base);
            if (factor != 0.0) sum += from.v[1] * factor;
        }
        sum = group_sum(sum);
        if (seen != 0u && sum == 0.0) sum = nan();
        if (me == 0u) store_facts(head, row, largest, sum);
        if (OUTPUT == 0u) continue;
        F32 to = F32(at_row(P.to, P.out_at, token_at(head, row), head_at(head, row)));
        for (uint d0 = 0; d0 < P.kv.v_dim; d0 += group) {
            float value = 0.0;
            for (uint part0 = 0; part0 < P.n_parts; part0 += group) {
                const uint n = min(group, P.n_parts - part0);
                barrier();
                if (me < n) factors[me] = factor_of(InF32(part_at(head, part0 + me, row)), base);
                barrier();
                for (uint part = 0; part < n && d0 + me < P.kv.v_dim; ++part) {
                    // a factor of 0 is skipped, because the values may be infinite
                    if (factors[part] == 0.0) continue;
                    InF32 from = InF32(part_at(head, part0 + part, row));
                    value += from.v[3u + d0 + me] * factors[part];
                }
            }
            if (d0 + me < P.kv.v_dim) to.v[d0 + me] = sum == 0.0 ? 0.0 : value / sum;
        }
    }
}

#else

#include "attention.glsl"

layout(constant_id = 3) const uint V_TYPE = 0; // 255: the type is read from the cache view
layout(constant_id = 4) const uint ROWS = 16; // number of rows of a tile, a power of two
// a power of two, at least head_dim rounded up to a multiple of 4
layout(constant_id = 5) const uint K_ROOM = 64;
// a power of two, at least v_dim
layout(constant_id = 6) const uint V_ROOM = 64;
layout(constant_id = 7) const uint OUTPUT = 1;
const uint SLOTS = 32; // number of slots in a tile

const uint GROUP = gl_WorkGroupSize.x; // a power of two, at least SLOTS
// Logits: each invocation computes Q_EACH rows for one slot.
const uint Q_LANES = GROUP / SLOTS;
const uint Q_EACH = ROWS > Q_LANES ? ROWS / Q_LANES : 1u;
// Values: each invocation computes V_EACH elements of R_EACH rows. These elements are GROUP or
// V_ROOM apart.
const uint V_LANES = V_ROOM < GROUP ? V_ROOM : GROUP;
const uint V_EACH = V_ROOM / V_LANES;
const uint R_LANES = GROUP / V_LANES;
const uint R_EACH = ROWS > R_LANES ? ROWS / R_LANES : 1u;

shared float q_tile[ROWS * K_ROOM], s_tile[ROWS * SLOTS], row_max[ROWS], row_sum[ROWS],
    row_factor[ROWS];
shared uint row_seen[ROWS];
shared uint64_t v_rows[SLOTS];

void main() {
    const uint me = gl_LocalInvocationIndex, head = gl_WorkGroupID.y, part = gl_WorkGroupID.z;
    const uint rows = P.m * P.group, dim = P.kv.k_dim, v_dim = P.kv.v_dim;
    const uint length = kv_length(P.kv, head);
    for (uint row0 = P.first * P.group + gl_WorkGroupID.x * ROWS; row0 < rows;
         row0 += gl_NumWorkGroups.x * ROWS) {
        // The range begin..end-1 of slots that at least one row of the tile sees.
        const uint begin = part * P.part_slots;
        uint end = min(begin + P.part_slots, length);
        if (P.causal != 0u) {
            const int limit =
                int(length) - int(P.m) + int(min(row0 + ROWS, rows) - 1u) / int(P.group) + 1;
            end = min(end, uint(max(limit, 0)));
        }
        barrier();
        for (uint s = me; s < ROWS * K_ROOM; s += GROUP) {
            const uint row = row0 + s / K_ROOM, e = s % K_ROOM;
            float value = 0.0;
            if (row < rows && e < dim)
                value = InF32(at_row(P.q, P.q_at, token_at(head, row), head_at(head, row))).v[e] *
                        P.scale;
            q_tile[s] = value;
        }
        for (uint r = me; r < ROWS; r += GROUP)
            row_max[r] = -kInf, row_sum[r] = 0.0, row_seen[r] = 0u;
        float acc[R_EACH * V_EACH];
        [[unroll]] for (uint a = 0; a < R_EACH * V_EACH; ++a)
            acc[a] = 0.0;

        for (uint slot0 = begin; slot0 < end; slot0 += SLOTS) {
            const uint n = min(SLOTS, end - slot0);
            barrier();
            {
                const uint t = me % SLOTS, lane = me / SLOTS, slot = slot0 + t;
                float logit[Q_EACH];
                [[unroll]] for (uint a = 0; a < Q_EACH; ++a)
                    logit[a] = 0.0;
                bool there = false;
                if (t < n) {
                    const int block = kv_block(P.kv, head, slot);
                    const uint in_block = slot & ((1u << P.kv.block_shift) - 1u);
                    there = block >= 0 && (P.ranged == 0u || in_ranges(slot));
                    if (lane == 0u)
                        v_rows[t] = block < 0 ? 0ul
                                              : kv_row(P.kv.v, P.kv.v_offset, P.kv.v_block,
                                                       P.kv.v_slot, block, in_block);
                    if (there) {
                        const uint64_t key = kv_row(P.kv.k, P.kv.k_offset, P.kv.k_block,
                                                    P.kv.k_slot, block, in_block);
                        for (uint e = 0; e + 4u <= dim; e += 4u) {
                            const vec4 k = load_k4(key, e);
                            [[unroll]] for (uint a = 0; a < Q_EACH; ++a) {
                                const uint q = (lane + a * Q_LANES) % ROWS * K_ROOM + e;
                                logit[a] += dot(k, vec4(q_tile[q], q_tile[q + 1u], q_tile[q + 2u],
                                                        q_tile[q + 3u]));
                            }
                        }
                        for (uint e = dim & ~3u; e < dim; ++e) {
                            const float k = load_value(K_TYPE, key, e);
                            [[unroll]] for (uint a = 0; a < Q_EACH; ++a)
                                logit[a] += k * q_tile[(lane + a * Q_LANES) % ROWS * K_ROOM + e];
                        }
                    }
                }
                [[unroll]] for (uint a = 0; a < Q_EACH; ++a) {
                    const uint r = lane + a * Q_LANES;
                    if (r >= ROWS) continue;
                    float value = -kInf;
                    if (there && row0 + r < rows &&
                        sees(head, (row0 + r) / P.group, slot, length)) {
                        value = capped(logit[a]);
                        row_seen[r] = 1u; // several invocations can write the same value 1
                    }
                    s_tile[r * SLOTS + t] = value;
                }
            }
            barrier();
            for (uint r = me; r < ROWS; r += GROUP) {
                float largest = row_max[r];
                for (uint t = 0; t < n; ++t) {
                    if (s_tile[r * SLOTS + t] > largest) largest = s_tile[r * SLOTS + t];
                }
                row_factor[r] = largest == row_max[r] ? 1.0 : exp_(row_max[r] - largest);
                row_max[r] = largest;
            }
            barrier();
            for (uint s = me; s < ROWS * SLOTS; s += GROUP) {
                const float base = row_max[s / SLOTS];
                // If a row does not see a slot, the slot's logit is -inf. The logits of seen slots
                // can be -inf too. row_seen tells whether the row sees any slot.
                s_tile[s] = base == -kInf && !is_nan(s_tile[s]) ? 0.0 : exp_(s_tile[s] - base);
            }
            barrier();
            for (uint r = me; r < ROWS; r += GROUP) {
                float sum = row_sum[r] * row_factor[r];
                for (uint t = 0; t < n; ++t)
                    sum += s_tile[r * SLOTS + t];
                row_sum[r] = sum;
            }
            if (OUTPUT == 0u) continue;
            const uint d0 = me % V_LANES, lane = me / V_LANES;
            [[unroll]] for (uint a = 0; a < R_EACH; ++a) {
                const float factor = row_factor[(lane + a * R_LANES) % ROWS];
                [[unroll]] for (uint b = 0; b < V_EACH; ++b)
                    acc[a * V_EACH + b] *= factor;
            }
            for (uint t = 0; t < n; ++t) {
                const uint64_t from = v_rows[t];
                if (from == 0ul) continue;
                [[unroll]] for (uint b = 0; b < V_EACH; ++b) {
                    const uint d = d0 + b * V_LANES;
                    if (d >= v_dim) continue;
                    const float value = load_value(V_TYPE == 255u ? P.kv.v_type : V_TYPE, from, d);
                    if (!is_finite(value)) {
                        // A probability of 0 is skipped, because the value can be infinite, and 0 *
                        // infinity is NaN.
                        [[unroll]] for (uint a = 0; a < R_EACH; ++a) {
                            const float weight = s_tile[(lane + a * R_LANES) % ROWS * SLOTS + t];
                            if (weight != 0.0) acc[a * V_EACH + b] += weight * value;
                        }
                        continue;
                    }
                    [[unroll]] for (uint a = 0; a < R_EACH; ++a) {
                        const uint row = (lane + a * R_LANES) % ROWS;
                        acc[a * V_EACH + b] += s_tile[row * SLOTS + t] * value;
                    }
                }
            }
        }
        barrier();

        for (uint r = me; r < ROWS; r += GROUP) {
            if (row0 + r >= rows) continue;
            if (P.n_parts > 1u) {
                F32 to = F32(part_at(head, part, row0 + r));
                to.v[0] = row_max[r];
                to.v[1] = row_sum[r];
                to.v[2] = float(row_seen[r]);
            } else {
                float sum = row_sum[r];
                if (row_seen[r] != 0u && sum == 0.0) sum = nan();
                store_facts(head, row0 + r, row_max[r], sum);
            }
        }
        if (OUTPUT == 0u) continue;
        [[unroll]] for (uint a = 0; a < R_EACH; ++a) {
            const uint r = me / V_LANES + a * R_LANES, row = row0 + r;
            if (r >= ROWS || row >= rows) continue;
            const float sum = row_sum[r];
            [[unroll]] for (uint b = 0; b < V_EACH; ++b) {
                const uint d = me % V_LANES + b * V_LANES;
                if (d >= v_dim) continue;
                if (P.n_parts > 1u) {
                    F32(part_at(head, part, row)).v[3u + d] = acc[a * V_EACH + b];
                    continue;
                }
                float value = acc[a * V_EACH + b] / sum;
                if (sum == 0.0) value = row_seen[r] != 0u ? nan() : 0.0;
                F32(at_row(P.to, P.out_at, token_at(head, row), head_at(head, row))).v[d] = value;
            }
        }
    }
}

#endif
