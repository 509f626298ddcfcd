// The ops qkv_prepare, kv_append, kv_gather and kv_rerotate. LANES work-items share the row of a
// head, which has at most MAX_DIM elements.
#define FLAG_NORM 1u
#define FLAG_Q_COPY 2u
#define FLAG_K_COPY 4u

// Handles the rows of a token: `heads` queries, then the keys, then the values. The op kv_append
// uses this kernel without queries, rotation and norm.
__kernel void prepare(Floats q, View qv, Floats k, View kv, Floats v, View vv, uint heads,
                      uint tokens, Ints positions, Positions place, Rope rope, Floats cos_table,
                      Floats sin_table, Floats q_norm, uint q_norm_offset, Floats k_norm,
                      uint k_norm_offset, uint flags, float eps, OutBytes k_arena, OutBytes v_arena,
                      Kv cache, Ints table, Ints lengths, __global int *slot_positions, Ints seats,
                      __global float *q_out, View q_outv, __global float *q_copy, View q_copyv,
                      __global float *k_copy, View k_copyv) {
    ROOM(room);
    SHARED float row[MAX_DIM];
    const uint parts = heads + 2 * cache.kv_heads, id = ROW_ID;
    SKIP_IF(id >= tokens * parts);
    const uint token = id / parts, part = id % parts;
    const int is_q = part < heads, is_k = !is_q && part < heads + cache.kv_heads;
    const uint head = is_q ? part : is_k ? part - heads : part - heads - cache.kv_heads;
    const uint kv_head = is_q ? head / (heads / cache.kv_heads) : head;
    const uint n = is_q || is_k ? cache.k_dim : cache.v_dim;
    Floats from = is_q   ? q + qv.offset + (ulong)token * qv.stride[1] + (ulong)head * qv.stride[2]
                  : is_k ? k + kv.offset + (ulong)token * kv.stride[1] + (ulong)head * kv.stride[2]
                         : v + vv.offset + (ulong)token * vv.stride[1] + (ulong)head * vv.stride[2];
    for (uint e = LANE; e < n; e += LANES)
        row[e] = from[e];
    SYNC;
    const int position =
        positions[place.offset + token * place.token_stride + kv_head * place.head_stride];
    // Only queries and keys need some of the steps below. For values, these steps also run, but
    // over no elements. So no barrier depends on a condition.
    const int turns = is_q || is_k, normed = turns && (flags & FLAG_NORM);
    Floats norm = is_q ? q_norm + q_norm_offset : k_norm + k_norm_offset;
    float sum = 0.0f;
    for (uint e = LANE; e < n && normed; e += LANES)
        sum += row[e] * row[e];
    sum = ALL_SUM(sum, room);
    const float scale = 1.0f / sqrt(sum / (float)n + eps);
    for (uint e = LANE; e < n && normed; e += LANES)
        row[e] = row[e] * scale * norm[e];
    SYNC;
    if (turns && (flags & (is_q ? FLAG_Q_COPY : FLAG_K_COPY))) {
        __global float *copy = is_q ? q_copy + q_copyv.offset + (ulong)token * q_copyv.stride[1] +
                                          (ulong)head * q_copyv.stride[2]
                                    : k_copy + k_copyv.offset + (ulong)token * k_copyv.stride[1] +
                                          (ulong)head * k_copyv.stride[2];
        for (uint e = LANE; e < n; e += LANES)
            copy[e] = row[e];
    }
    SYNC;
    rotate_row(row, rope, turns ? rope.half_ : 0, cos_table, sin_table, table_row(rope, position),
               1.0f);
    SYNC;
    if (is_q) {
        __global float *to = q_out + q_outv.offset + (ulong)token * q_outv.stride[1] +
                             (ulong)head * q_outv.stride[2];
        for (uint e = LANE; e < n; e += LANES)
            to[e] = row[e];
        return;
    }
    // In a batch of sequences, each token is the newest token of its own sequence.
    const uint book = book_of(cache, seats, token * cache.seat_heads + head);
    const int slot = (int)kv_length(cache, lengths, book) -
                     (cache.seat_heads == 0 ? (int)tokens - (int)token : 1);
    const int block = slot < 0 ? -1 : kv_block(cache, table, book, (uint)slot);
    if (block < 0) return;
    if (is_k) {
        store_row(row, n, k_arena + k_place(cache, block, (uint)slot), cache.k_type);
        if (LANE == 0 && (uint)slot < cache.positions_slots)
            slot_positions[cache.positions_offset + book * cache.positions_stride + (uint)slot] =
                position;
    } else {
        store_row(row, n, v_arena + v_place(cache, block, (uint)slot), cache.v_type);
    }
}

// Changes the rotation of keys in the cache by row turns[h][j] of the RoPE tables. If a flag is
// set, the keys are read from `source`.
__kernel void rerotate(OutBytes k_arena, Kv cache, Ints table, Ints lengths,
                       __global int *slot_positions, Rope rope, Floats cos_table, Floats sin_table,
                       Ints turns, View turnsv, Ints new_positions, View new_positionsv,
                       Floats source, View sourcev, uint from_source, uint begin, uint count) {
    SHARED float row[MAX_DIM];
    const uint id = ROW_ID;
    SKIP_IF(id >= cache.kv_heads * count);
    const uint head = id / count, slot = begin + id % count;
    const int there =
        slot < kv_length(cache, lengths, head) && slot < turnsv.n && slot < new_positionsv.n;
    const int turn = there ? turns[turnsv.offset + head * turnsv.stride[2] + slot] : -1;
    const int block = there ? kv_block(cache, table, head, slot) : 0;
    const int works = turn >= 0 && turn < (int)rope.rows && block >= 0;
    const uint n = works ? cache.k_dim : 0;
    OutBytes place = k_arena + k_place(cache, max(block, 0), slot);
    Floats from = source + sourcev.offset + (ulong)head * sourcev.stride[1] +
                  (ulong)(slot - begin) * sourcev.stride[2];
    for (uint e = LANE; e < n; e += LANES)
        row[e] = from_source ? from[e] : load_one(place, cache.k_type, e);
    SYNC;
    rotate_row(row, rope, works ? rope.half_ : 0, cos_table, sin_table, works ? (uint)turn : 0,
               1.0f);
    SYNC;
    store_row(row, n, place, cache.k_type);
    if (LANE == 0 && works && slot < cache.positions_slots)
        slot_positions[cache.positions_offset + head * cache.positions_stride + slot] =
            new_positions[new_positionsv.offset + head * new_positionsv.stride[2] + slot];
}

// ---- kv_gather ----
//
// The indices of a list rise strictly. So slots can be moved in place, if they are moved in order.
// LANES slots are moved at a time. All LANES slots are read before the first one is written. A
// group handles CHUNK units of each row of a head.
#if LANES == 1
#define CHUNK 32
#else
#define CHUNK 4
#endif

__kernel void gather_rows(__global const ushort *from, Kv from_cache, Ints from_table,
                          __global ushort *to, Kv to_cache, Ints to_table, Ints index, View indexv,
                          Ints count, uint count_offset, uint values, uint units) {
    const uint pieces = (units + CHUNK - 1) / CHUNK, id = ROW_ID;
    SKIP_IF(id >= pieces * to_cache.kv_heads);
    const uint head = id / pieces, begin = id % pieces * CHUNK;
    const uint part = min((uint)CHUNK, units - begin);
    const uint n = (uint)clamp(count[count_offset + head], 0, (int)indexv.n);
    Ints list = index + indexv.offset + (ulong)head * indexv.stride[2];
    for (uint base = 0; base < n; base += LANES) {
        const uint j = base + LANE;
        ushort held[CHUNK];
        const int source = j < n ? list[j] : -1;
        const int source_block =
            source < 0 ? -1 : kv_block(from_cache, from_table, head, (uint)source);
        const int target_block = j < n ? kv_block(to_cache, to_table, head, j) : -1;
        const int moves = source_block >= 0 && target_block >= 0;
        if (moves) {
            __global const ushort *in = from +
                                        (values ? v_place(from_cache, source_block, (uint)source)
                                                : k_place(from_cache, source_block, (uint)source)) /
                                            2 +
                                        begin;
            for (uint e = 0; e < part; ++e)
                held[e] = in[e];
        }
        SYNC;
        if (moves) {
            __global ushort *out =
                to +
                (values ? v_place(to_cache, target_block, j) : k_place(to_cache, target_block, j)) /
                    2 +
                begin;
            for (uint e = 0; e < part; ++e)
                out[e] = held[e];
        }
        SYNC;
    }
}

// Moves the four-byte values that belong to each slot: positions and side arrays.
__kernel void gather_values(Ints from, View fromv, __global int *to, View tov, Ints index,
                            View indexv, Ints count, uint count_offset) {
    const uint head = ROW_ID;
    SKIP_IF(head >= indexv.shape[2]);
    const uint n = (uint)clamp(count[count_offset + head], 0, (int)indexv.n);
    Ints list = index + indexv.offset + (ulong)head * indexv.stride[2];
    Ints in = from + fromv.offset + (ulong)head * fromv.stride[2];
    __global int *out = to + tov.offset + (ulong)head * tov.stride[2];
    for (uint base = 0; base < n; base += LANES) {
        const uint j = base + LANE;
        const int source = j < n && j < tov.n ? list[j] : -1;
        const int moves = source >= 0 && (uint)source < fromv.n;
        const int held = moves ? in[source] : 0;
        SYNC;
        if (moves) out[j] = held;
        SYNC;
    }
}
