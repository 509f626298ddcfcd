// Attention scores: probabilities (or logits), reduced to one number per slot. K_TYPE is the type
// of the keys. -1 means that the kernel gets this type at run time. MAX_DIM is at least the size of
// the heads.
#if K_TYPE < 0
#define KT c.k_type
#else
#define KT K_TYPE
#endif

static inline int in_ranges(uint slot, Ints ranges, View rangesv) {
    for (uint i = 0; i < rangesv.shape[2]; ++i) {
        Ints range = ranges + rangesv.offset + i * rangesv.stride[2];
        if ((int)slot >= range[0] && (int)slot < range[1]) return 1;
    }
    return 0;
}

static inline int query_position(Rules rules, Ints q_positions, uint token, uint head) {
    return q_positions[rules.place.offset + token * rules.place.token_stride +
                       head * rules.place.head_stride];
}

// Used by the op attention_scores. Computes the maximum and the sum of exp for each row that
// contributes to the scores. LANES work-items share the slots of a row.
__kernel void score_stats(Floats q, View qv, Bytes k, Kv c, Ints table, Ints lengths,
                          Ints positions, Ints q_positions, Rules rules, Ints ranges, View rangesv,
                          uint contributing, __global float *stats) {
    ROOM(room);
    const uint id = ROW_ID, per_head = contributing * rules.group;
    SKIP_IF(id >= per_head * c.kv_heads);
    const uint head = id / per_head,
               r = (rules.tokens - contributing) * rules.group + id % per_head;
    const uint token = r / rules.group, length = kv_length(c, lengths, head),
               end = seen_end(rules, length, token);
    Floats mine = q + qv.offset + (ulong)token * qv.stride[1] +
                  (ulong)(head * rules.group + r % rules.group) * qv.stride[2];
    Ints slot_positions = positions + c.positions_offset + head * c.positions_stride;
    const int q_position =
        rules.flags & WINDOW ? query_position(rules, q_positions, token, head) : 0;
    float largest = -INFINITY, sum = 0.0f;
    for (uint base = 16 * LANE; base < end; base += 16 * LANES) {
        float logits[16];
        for (uint s = 0; s < 16; ++s) {
            const uint slot = base + s;
            const int sees =
                slot < end && (!(rules.flags & RANGES) || in_ranges(slot, ranges, rangesv)) &&
                (!(rules.flags & WINDOW) || q_position - slot_positions[slot] < rules.window);
            const int block = sees ? kv_block(c, table, head, slot) : -1;
            logits[s] = block < 0
                            ? -INFINITY
                            : capped(rules, rules.scale * dot_row(mine, k + k_place(c, block, slot),
                                                                  KT, c.k_dim));
        }
        const float16 x = vload16(0, logits);
        const float8 a = fmax(x.lo, x.hi);
        const float4 b = fmax(a.lo, a.hi);
        const float2 d = fmax(b.lo, b.hi);
        const float now = fmax(largest, fmax(d.x, d.y));
        const float16 p = select(exp(x - now), (float16)(0.0f), x == (float16)(-INFINITY));
        const float8 e = p.lo + p.hi;
        const float4 f = e.lo + e.hi;
        const float2 g = f.lo + f.hi;
        sum = sum * (largest == now ? 1.0f : exp(largest - now)) + g.x + g.y;
        largest = now;
    }
    const float all = ALL_MAX(largest, room);
    sum = ALL_SUM(largest == all ? sum : sum * exp(largest - all), room);
    if (LANE != 0) return;
    stats[STAT_AT(head, r)] = all;
    stats[STAT_AT(head, r) + 1] = sum;
}

static inline float larger(float a, float b) { // returns NaN if one of them is NaN
    return isnan(a) || a > b ? a : b;
}

#define REDUCE_NONE 0u
#define REDUCE_MEAN 2u
#define REDUCE_MAX 3u

// Each work-item handles one slot of a KV head. It loops over the contributing queries, sixteen
// queries at a time.
__kernel void scores(Floats q, View qv, Bytes k, Kv c, Ints table, Ints lengths, Ints positions,
                     Ints q_positions, Rules rules, Floats stats, Floats weights, View weightsv,
                     Ints ranges, View rangesv, uint contributing, uint reduce_queries,
                     uint reduce_group, uint accumulate, __global float *out, View outv) {
    const uint slot = (uint)get_global_id(0), head = (uint)get_global_id(1);
    if (head >= c.kv_heads) return;
    const uint length = kv_length(c, lengths, head);
    if (slot >= length || slot >= outv.n) return;
    const int block = kv_block(c, table, head, slot);
    const int inside = block >= 0 && (!(rules.flags & RANGES) || in_ranges(slot, ranges, rangesv));
    const int by_max = reduce_queries == REDUCE_MAX, as_logits = (rules.flags & LOGITS) != 0;
    const float weight =
        rules.flags & WEIGHTS ? weights[weightsv.offset + head * weightsv.stride[2] + slot] : 1.0f;
    const int position =
        rules.flags & WINDOW ? positions[c.positions_offset + head * c.positions_stride + slot] : 0;
    Bytes key = k + (block >= 0 ? k_place(c, block, slot) : 0);
    float row[MAX_DIM];
    for (uint e = 0; e < c.k_dim && inside; ++e)
        row[e] = load_one(key, KT, e);
    float reduced = 0.0f;
    for (uint g = 0; g < rules.group; ++g) {
        float value = by_max ? -INFINITY : 0.0f;
        uint count = 0;
        for (uint first = rules.tokens - contributing; first < rules.tokens && inside;
             first += 16) {
            const uint many = min(16u, rules.tokens - first);
            float p[16], sums[16];
            uint seen = 0;
            for (uint i = 0; i < 16; ++i) {
                p[i] = -INFINITY;
                sums[i] = 1.0f;
                const uint token = first + i;
                if (i >= many || slot >= seen_end(rules, length, token)) continue;
                if ((rules.flags & WINDOW) &&
                    query_position(rules, q_positions, token, head) - position >= rules.window)
                    continue;
                seen |= 1u << i;
                Floats mine = q + qv.offset + (ulong)token * qv.stride[1] +
                              (ulong)(head * rules.group + g) * qv.stride[2];
                floatW acc = 0.0f;
                uint e = 0;
                for (; e + W <= c.k_dim; e += W)
                    acc += vloadW(0, mine + e) * vloadW(0, row + e);
                float logit = sum_of(acc);
                for (; e < c.k_dim; ++e)
                    logit += mine[e] * row[e];
                logit = capped(rules, logit * rules.scale);
                if (as_logits) {
                    p[i] = logit;
                } else {
                    const ulong at = STAT_AT(head, token * rules.group + g);
                    p[i] = logit - stats[at];
                    sums[i] = stats[at + 1];
                }
            }
            if (!as_logits) vstore16(exp(vload16(0, p)) / vload16(0, sums), 0, p);
            for (uint i = 0; i < many; ++i) {
                const int sees = seen >> i & 1u;
                if (!sees && as_logits) continue;
                const float x = sees ? p[i] * weight : 0.0f;
                value = by_max ? larger(value, x) : value + x;
                ++count;
            }
        }
        if (!inside)
            value = 0.0f;
        else if (reduce_queries == REDUCE_MEAN)
            value = count == 0 ? 0.0f : value / (float)count;
        if (reduce_group == REDUCE_NONE || g + 1 == rules.group) {
            const uint to_head = reduce_group == REDUCE_NONE ? head * rules.group + g : head;
            if (reduce_group != REDUCE_NONE && g != 0)
                value = reduce_group == REDUCE_MAX ? larger(reduced, value) : reduced + value;
            if (reduce_group == REDUCE_MEAN) value /= (float)rules.group;
            __global float *to = out + outv.offset + (ulong)to_head * outv.stride[2] + slot;
            *to = !accumulate ? value : by_max ? larger(*to, value) : *to + value;
        } else {
            reduced = g == 0                       ? value
                      : reduce_group == REDUCE_MAX ? larger(reduced, value)
                                                   : reduced + value;
        }
    }
}
