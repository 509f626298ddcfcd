// Attention with online softmax. K_TYPE and V_TYPE are the types of the cache. -1 means that the
// kernel gets these types at run time. MAX_DIM is at least the size of the heads.
//
// The queries of a KV head form tokens * group rows. Row r is query head r % group of the KV head,
// for token r / group. So the query heads that share keys also share the loads of these keys, in
// decode too. A work-item (plain form) or a group (local form) handles ROWS rows at a time.
#if K_TYPE < 0
#define KT c.k_type
#else
#define KT K_TYPE
#endif
#if V_TYPE < 0
#define VT c.v_type
#else
#define VT V_TYPE
#endif

// Index of the partial result of row r in split `split`. A partial result has the maximum, the sum,
// a flag that is 1 if any slot was seen, and then the sums of values.
#define PARTIAL_AT(head, r)                                                                        \
    (((ulong)(head)*rules.tokens * rules.group + (r)) * splits + split) * (c.v_dim + 3)

#if LANES == 1
// number of slots handled together, so that one vector exp computes all of them
#define SLOTS 16

// The global ids are: tile of rows, KV head, split of the slots.
__kernel void attention(Floats q, View qv, Bytes k, Bytes v, Kv c, Ints table, Ints lengths,
                        Ints positions, Ints seats, Ints q_positions, Rules rules, uint splits,
                        uint split_slots, __global float *out, View outv, __global float *lse,
                        View lsev, __global float *stats, uint partial_offset) {
    __global float *partial = stats + partial_offset;
    const uint first = (uint)get_global_id(0) * ROWS, head = (uint)get_global_id(1),
               split = (uint)get_global_id(2);
    const uint rows = rules.tokens * rules.group;
    if (first >= rows || head >= c.kv_heads || split >= splits) return;
    const uint book = book_of(c, seats, head), own = own_head(c, head),
               sequence = sequence_of(c, head);
    const uint length = kv_length(c, lengths, book);
    Ints slot_positions = positions + c.positions_offset + book * c.positions_stride;
    Floats qs[ROWS];
    uint ends[ROWS], any[ROWS];
    int q_position[ROWS];
    float largest[ROWS], sum[ROWS], acc[ROWS][MAX_DIM];
    uint end = 0;
    for (uint t = 0; t < ROWS; ++t) {
        const uint r = min(first + t, rows - 1), token = r / rules.group;
        qs[t] = q + qv.offset + (ulong)(sequence + token) * qv.stride[1] +
                (ulong)(own * rules.group + r % rules.group) * qv.stride[2];
        ends[t] = first + t < rows ? seen_end(rules, length, token) : 0;
        q_position[t] =
            rules.flags & WINDOW
                ? q_positions[rules.place.offset + (sequence + token) * rules.place.token_stride +
                              own * rules.place.head_stride]
                : 0;
        any[t] = 0;
        largest[t] = -INFINITY;
        sum[t] = 0.0f;
        for (uint e = 0; e < c.v_dim; ++e)
            acc[t][e] = 0.0f;
        end = max(end, ends[t]);
    }
    const uint begin = split * split_slots;
    end = min(end, begin + split_slots);
    for (uint base = begin; base < end; base += SLOTS) {
        const uint count = min((uint)SLOTS, end - base);
        float logits[ROWS][SLOTS];
        uint seen[ROWS];
        int blocks[SLOTS];
        for (uint t = 0; t < ROWS; ++t)
            seen[t] = 0;
        for (uint s = 0; s < count; ++s) {
            const uint slot = base + s;
            blocks[s] = kv_block(c, table, book, slot);
            for (uint t = 0; t < ROWS; ++t) {
                logits[t][s] = -INFINITY;
                const int sees = blocks[s] >= 0 && slot < ends[t] &&
                                 (!(rules.flags & WINDOW) ||
                                  q_position[t] - slot_positions[slot] < rules.window);
                seen[t] |= (uint)sees << s;
            }
            if (blocks[s] < 0) continue;
            Bytes key = k + k_place(c, blocks[s], slot);
            floatW many[ROWS];
            for (uint t = 0; t < ROWS; ++t)
                many[t] = 0.0f;
            uint e = 0;
            for (; e + W <= c.k_dim; e += W) {
                const floatW x = load_some(key, KT, e);
#pragma unroll
                for (uint t = 0; t < ROWS; ++t)
                    many[t] += vloadW(0, qs[t] + e) * x;
            }
            for (uint t = 0; t < ROWS; ++t) {
                float logit = sum_of(many[t]);
                for (uint tail = e; tail < c.k_dim; ++tail)
                    logit += qs[t][tail] * load_one(key, KT, tail);
                if (seen[t] >> s & 1u) logits[t][s] = capped(rules, logit * rules.scale);
            }
        }
        for (uint t = 0; t < ROWS; ++t) {
            if (seen[t] == 0) continue;
            for (uint s = count; s < SLOTS; ++s)
                logits[t][s] = -INFINITY;
            any[t] = 1;
            float16 x = vload16(0, logits[t]);
            const float8 a = fmax(x.lo, x.hi);
            const float4 b = fmax(a.lo, a.hi);
            const float2 d = fmax(b.lo, b.hi);
            const float now = fmax(largest[t], fmax(d.x, d.y));
            const float16 p = select(exp(x - now), (float16)(0.0f), x == (float16)(-INFINITY));
            vstore16(p, 0, logits[t]);
            const float old = largest[t] == now ? 1.0f : exp(largest[t] - now);
            sum[t] = sum[t] * old + sum_of(p);
            largest[t] = now;
            if (old != 1.0f)
                for (uint e = 0; e < c.v_dim; ++e)
                    acc[t][e] *= old;
        }
        for (uint s = 0; s < count; ++s) {
            if (blocks[s] < 0) continue;
            Bytes value = v + v_place(c, blocks[s], base + s);
            uint e = 0;
            for (; e + W <= c.v_dim; e += W) {
                const floatW x = load_some(value, VT, e);
                for (uint t = 0; t < ROWS; ++t)
                    if (seen[t] >> s & 1u)
                        vstoreW(vloadW(0, acc[t] + e) + logits[t][s] * x, 0, acc[t] + e);
            }
            for (; e < c.v_dim; ++e)
                for (uint t = 0; t < ROWS; ++t)
                    if (seen[t] >> s & 1u) acc[t][e] += logits[t][s] * load_one(value, VT, e);
        }
    }
    for (uint t = 0; t < ROWS && first + t < rows; ++t) {
        const uint r = first + t, token = sequence + r / rules.group,
                   h = own * rules.group + r % rules.group;
        if (splits > 1) {
            __global float *part = partial + PARTIAL_AT(head, r);
            part[0] = largest[t];
            part[1] = sum[t];
            part[2] = (float)any[t];
            for (uint e = 0; e < c.v_dim; ++e)
                part[3 + e] = acc[t][e];
            continue;
        }
        __global float *to =
            out + outv.offset + (ulong)token * outv.stride[1] + (ulong)h * outv.stride[2];
        for (uint e = 0; e < c.v_dim; ++e)
            to[e] = any[t] ? acc[t][e] / sum[t] : 0.0f;
        if (rules.flags & LSE)
            lse[lsev.offset + token * lsev.stride[2] + h] = !any[t] ? -INFINITY
                                                            : sum[t] == 0.0f
                                                                ? NAN_F
                                                                : largest[t] + log(sum[t]);
        if (rules.flags & STATS) {
            stats[STAT_AT(head, r)] = largest[t];
            stats[STAT_AT(head, r) + 1] = sum[t];
        }
    }
}
#else
#define OWN ((MAX_DIM + LANES - 1) / LANES) // number of elements of a value that each lane sums

// The group ids are: tile of rows, KV head, split of the slots. The LANES work-items of a group
// handle LANES slots at a time. For the logits, each lane handles one slot. For the values, each
// lane handles some elements of the value.
__kernel void attention(Floats q, View qv, Bytes k, Bytes v, Kv c, Ints table, Ints lengths,
                        Ints positions, Ints seats, Ints q_positions, Rules rules, uint splits,
                        uint split_slots, __global float *out, View outv, __global float *lse,
                        View lsev, __global float *stats, uint partial_offset) {
    __global float *partial = stats + partial_offset;
    __local float q_tile[ROWS][MAX_DIM], p_tile[ROWS][LANES];
    __local float largest[ROWS], sum[ROWS], old[ROWS];
    __local uint any[ROWS], seen_by[LANES];
    __local int blocks[LANES];
    const uint first = (uint)get_group_id(0) * ROWS, head = (uint)get_group_id(1),
               split = (uint)get_group_id(2);
    const uint rows = rules.tokens * rules.group, lane = LANE;
    const uint book = book_of(c, seats, head), own = own_head(c, head),
               sequence = sequence_of(c, head);
    const uint length = kv_length(c, lengths, book);
    Ints slot_positions = positions + c.positions_offset + book * c.positions_stride;
    float acc[ROWS][OWN];
    uint end = 0;
    for (uint t = 0; t < ROWS; ++t) {
        const uint r = min(first + t, rows - 1), token = r / rules.group;
        Floats from = q + qv.offset + (ulong)(sequence + token) * qv.stride[1] +
                      (ulong)(own * rules.group + r % rules.group) * qv.stride[2];
        for (uint e = lane; e < c.k_dim; e += LANES)
            q_tile[t][e] = from[e];
        for (uint i = 0; i < OWN; ++i)
            acc[t][i] = 0.0f;
        if (first + t < rows) end = max(end, seen_end(rules, length, token));
    }
    if (lane < ROWS) {
        largest[lane] = -INFINITY;
        sum[lane] = 0.0f;
        any[lane] = 0;
    }
    const uint begin = split * split_slots;
    end = min(end, begin + split_slots);
    SYNC; // `out` can overlap q
    for (uint base = begin; base < end; base += LANES) {
        const uint slot = base + lane;
        const int block = slot < end ? kv_block(c, table, book, slot) : -1;
        float logits[ROWS];
        uint seen = 0;
        for (uint t = 0; t < ROWS; ++t)
            logits[t] = 0.0f;
        if (block >= 0) {
            Bytes key = k + k_place(c, block, slot);
            uint e = 0;
            for (; e + W <= c.k_dim; e += W) {
                const floatW x = load_some(key, KT, e);
                for (uint t = 0; t < ROWS; ++t)
                    logits[t] += sum_of(vloadW(0, q_tile[t] + e) * x);
            }
            for (; e < c.k_dim; ++e) {
                const float x = load_one(key, KT, e);
                for (uint t = 0; t < ROWS; ++t)
                    logits[t] += q_tile[t][e] * x;
            }
            const int position = rules.flags & WINDOW ? slot_positions[slot] : 0;
            for (uint t = 0; t < ROWS; ++t) {
                const uint r = first + t, token = min(r, rows - 1) / rules.group;
                const int q_position =
                    rules.flags & WINDOW
                        ? q_positions[rules.place.offset +
                                      (sequence + token) * rules.place.token_stride +
                                      own * rules.place.head_stride]
                        : 0;
                const int sees = r < rows && slot < seen_end(rules, length, token) &&
                                 (!(rules.flags & WINDOW) || q_position - position < rules.window);
                seen |= (uint)sees << t;
            }
        }
        for (uint t = 0; t < ROWS; ++t)
            p_tile[t][lane] = seen >> t & 1u ? capped(rules, logits[t] * rules.scale) : -INFINITY;
        seen_by[lane] = seen;
        blocks[lane] = block;
        barrier(CLK_LOCAL_MEM_FENCE);
        // There are few rows and the loops are short, so one lane per row is enough.
        for (uint t = lane; t < ROWS; t += LANES) {
            float now = largest[t];
            uint sees = 0;
            for (uint s = 0; s < LANES; ++s) {
                now = fmax(now, p_tile[t][s]);
                sees |= seen_by[s] >> t & 1u;
            }
            old[t] = largest[t] == now ? 1.0f : exp(largest[t] - now);
            largest[t] = now;
            any[t] |= sees;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint t = 0; t < ROWS; ++t) {
            const float x = p_tile[t][lane];
            p_tile[t][lane] = x == -INFINITY ? 0.0f : exp(x - largest[t]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint t = lane; t < ROWS; t += LANES) {
            float all = 0.0f;
            for (uint s = 0; s < LANES; ++s)
                all += p_tile[t][s];
            sum[t] = sum[t] * old[t] + all;
        }
        for (uint t = 0; t < ROWS; ++t)
            for (uint i = 0; i < OWN; ++i)
                acc[t][i] *= old[t];
        const uint count = min((uint)LANES, end - base);
        for (uint s = 0; s < count; ++s) {
            if (seen_by[s] == 0) continue;
            Bytes value = v + v_place(c, blocks[s], base + s);
            for (uint i = 0; i < OWN; ++i) {
                const uint e = lane + i * LANES;
                if (e >= c.v_dim) break;
                const float x = load_one(value, VT, e);
                for (uint t = 0; t < ROWS; ++t)
                    if (seen_by[s] >> t & 1u) acc[t][i] += p_tile[t][s] * x;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint t = 0; t < ROWS && first + t < rows; ++t) {
        const uint r = first + t, token = sequence + r / rules.group,
                   h = own * rules.group + r % rules.group;
        if (splits > 1) {
            __global float *part = partial + PARTIAL_AT(head, r);
            if (lane == 0) {
                part[0] = largest[t];
                part[1] = sum[t];
                part[2] = (float)any[t];
            }
            for (uint i = 0; i < OWN; ++i)
                if (lane + i * LANES < c.v_dim) part[3 + lane + i * LANES] = acc[t][i];
            continue;
        }
        __global float *to =
            out + outv.offset + (ulong)token * outv.stride[1] + (ulong)h * outv.stride[2];
        for (uint i = 0; i < OWN; ++i)
            if (lane + i * LANES < c.v_dim)
                to[lane + i * LANES] = any[t] ? acc[t][i] / sum[t] : 0.0f;
        if (lane != 0) continue;
        if (rules.flags & LSE)
            lse[lsev.offset + token * lsev.stride[2] + h] = !any[t] ? -INFINITY
                                                            : sum[t] == 0.0f
                                                                ? NAN_F
                                                                : largest[t] + log(sum[t]);
        if (rules.flags & STATS) {
            stats[STAT_AT(head, r)] = largest[t];
            stats[STAT_AT(head, r) + 1] = sum[t];
        }
    }
}
#endif

// Combines the partial results of a row's splits. LANES work-items share a row.
__kernel void attention_join(Kv c, Rules rules, uint splits, __global float *out, View outv,
                             __global float *lse, View lsev, __global float *stats,
                             uint partial_offset) {
    __global const float *partial = stats + partial_offset;
    const uint id = ROW_ID, rows = rules.tokens * rules.group;
    SKIP_IF(id >= rows * c.kv_heads);
    const uint head = id / rows, r = id % rows, token = sequence_of(c, head) + r / rules.group,
               h = own_head(c, head) * rules.group + r % rules.group;
    float largest = -INFINITY, sum = 0.0f, any = 0.0f;
    for (uint split = 0; split < splits; ++split)
        largest = fmax(largest, partial[PARTIAL_AT(head, r)]);
    for (uint split = 0; split < splits; ++split) {
        __global const float *part = partial + PARTIAL_AT(head, r);
        sum += part[0] == largest ? part[1] : part[1] * exp(part[0] - largest);
        any += part[2];
    }
    __global float *to =
        out + outv.offset + (ulong)token * outv.stride[1] + (ulong)h * outv.stride[2];
    for (uint e = LANE; e < c.v_dim; e += LANES) {
        float value = 0.0f;
        for (uint split = 0; split < splits; ++split) {
            __global const float *part = partial + PARTIAL_AT(head, r);
            value += part[0] == largest ? part[3 + e] : part[3 + e] * exp(part[0] - largest);
        }
        to[e] = any != 0.0f ? value / sum : 0.0f;
    }
    if (LANE != 0) return;
    if (rules.flags & LSE)
        lse[lsev.offset + token * lsev.stride[2] + h] = any == 0.0f   ? -INFINITY
                                                        : sum == 0.0f ? NAN_F
                                                                      : largest + log(sum);
    if (rules.flags & STATS) {
        stats[STAT_AT(head, r)] = largest;
        stats[STAT_AT(head, r) + 1] = sum;
    }
}
