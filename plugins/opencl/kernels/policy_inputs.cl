// The ops key_project, key_sum, value_norms and query_stats. LANES work-items share a row of at
// most MAX_DIM elements.
#define UNROTATED 1u
#define NORMS 2u
#define NORMALIZED 4u
#define L1 8u

// Computes for each head and slot: the key times the projection [k_dim, r]. If r is 0, computes the
// key itself. With the flag NORMS, computes the norm of the key.
__kernel void key_project(Bytes k, Kv c, Ints table, Ints lengths, Ints positions, Rope rope,
                          Floats cos_table, Floats sin_table, Floats projection, View projectionv,
                          uint r, uint flags, uint begin, uint count, __global float *out,
                          View outv) {
    ROOM(room);
    SHARED float row[MAX_DIM];
    const uint id = ROW_ID;
    SKIP_IF(id >= c.kv_heads * count);
    const uint head = id / count, slot = begin + id % count;
    const int block = slot < kv_length(c, lengths, head) ? kv_block(c, table, head, slot) : -1;
    // if there is no block, the row is empty; this is not a return, because no barrier may depend
    // on a condition
    const uint n = block < 0 ? 0 : c.k_dim;
    Bytes key = k + k_place(c, max(block, 0), slot);
    for (uint e = LANE; e < n; e += LANES)
        row[e] = load_one(key, c.k_type, e);
    SYNC;
    const uint pairs = n == 0 || !(flags & UNROTATED) ? 0 : rope.half_;
    const int position =
        pairs != 0 ? positions[c.positions_offset + head * c.positions_stride + slot] : 0;
    rotate_row(row, rope, pairs, cos_table, sin_table, table_row(rope, position), -1.0f);
    SYNC;
    float square = 0.0f;
    for (uint e = LANE; e < n && (flags & NORMS); e += LANES)
        square += row[e] * row[e];
    square = ALL_SUM(square, room);
    if (block < 0) return;
    if (flags & NORMS) {
        if (LANE == 0) out[outv.offset + (ulong)head * outv.stride[2] + slot] = sqrt(square);
        return;
    }
    __global float *to =
        out + outv.offset + (ulong)head * outv.stride[1] + (ulong)slot * outv.stride[2];
    if (r == 0) {
        for (uint e = LANE; e < c.k_dim; e += LANES)
            to[e] = row[e];
        return;
    }
    Floats matrix = projection + projectionv.offset;
    for (uint b = LANE; b < r / W; b += LANES) {
        floatW sum = 0.0f;
        for (uint e = 0; e < c.k_dim; ++e)
            sum += row[e] * vloadW(b, matrix + (ulong)e * projectionv.stride[2]);
        vstoreW(sum, b, to);
    }
    for (uint column = r / W * W + LANE; column < r; column += LANES) {
        float sum = 0.0f;
        for (uint e = 0; e < c.k_dim; ++e)
            sum += row[e] * matrix[(ulong)e * projectionv.stride[2] + column];
        to[column] = sum;
    }
}

// Computes the sum of the keys of a KV head.
__kernel void key_sum(Bytes k, Kv c, Ints table, Ints lengths, uint flags, uint begin, uint end,
                      __global float *out, View outv) {
    ROOM(room);
    SHARED float sums[MAX_DIM], row[MAX_DIM];
    const uint head = ROW_ID;
    SKIP_IF(head >= c.kv_heads);
    end = min(end, kv_length(c, lengths, head));
    for (uint e = LANE; e < c.k_dim; e += LANES)
        sums[e] = 0.0f;
    for (uint slot = begin; slot < end; ++slot) {
        const int block = kv_block(c, table, head, slot);
        const uint n = block < 0 ? 0 : c.k_dim;
        Bytes key = k + k_place(c, max(block, 0), slot);
        float square = 0.0f;
        // each lane reads only elements that the same lane wrote
        for (uint e = LANE; e < n; e += LANES) {
            row[e] = load_one(key, c.k_type, e);
            square += row[e] * row[e];
        }
        const float norm = sqrt(ALL_SUM(square, room));
        const float by = !(flags & NORMALIZED) ? 1.0f : norm == 0.0f ? 0.0f : 1.0f / norm;
        for (uint e = LANE; e < n; e += LANES)
            sums[e] += row[e] * by;
    }
    for (uint e = LANE; e < c.k_dim; e += LANES)
        out[outv.offset + (ulong)head * outv.stride[2] + e] = sums[e];
}

__kernel void value_norms(Bytes v, Kv c, Ints table, Ints lengths, uint flags, uint begin,
                          uint count, __global float *out, View outv) {
    ROOM(room);
    const uint id = ROW_ID;
    SKIP_IF(id >= c.kv_heads * count);
    const uint head = id / count, slot = begin + id % count;
    const int block = slot < kv_length(c, lengths, head) ? kv_block(c, table, head, slot) : -1;
    const uint n = block < 0 ? 0 : c.v_dim;
    Bytes value = v + v_place(c, max(block, 0), slot);
    float sum = 0.0f;
    for (uint e = LANE; e < n; e += LANES) {
        const float x = load_one(value, c.v_type, e);
        sum += flags & L1 ? fabs(x) : x * x;
    }
    sum = ALL_SUM(sum, room);
    if (LANE == 0 && block >= 0)
        out[outv.offset + (ulong)head * outv.stride[2] + slot] = flags & L1 ? sum : sqrt(sum);
}

// Computes row e of a head's second moments, and element e of its sum.
__kernel void query_stats(Floats q, View qv, __global float *sums, View sumsv,
                          __global float *second, View secondv, uint has_second) {
    const uint id = ROW_ID, heads = qv.shape[2], n = qv.n;
    SKIP_IF(id >= heads * n);
    const uint head = id / n, e = id % n;
    Floats mine = q + qv.offset + (ulong)head * qv.stride[2];
    if (LANE == 0) {
        __global float *to = sums + sumsv.offset + (ulong)head * sumsv.stride[2] + e;
        float sum = *to;
        for (uint i = 0; i < qv.shape[1]; ++i)
            sum += mine[(ulong)i * qv.stride[1] + e];
        *to = sum;
    }
    if (!has_second) return;
    __global float *row =
        second + secondv.offset + (ulong)head * secondv.stride[1] + (ulong)e * secondv.stride[2];
    for (uint f = LANE; f < n; f += LANES) {
        float sum = row[f];
        for (uint i = 0; i < qv.shape[1]; ++i)
            sum += mine[(ulong)i * qv.stride[1] + e] * mine[(ulong)i * qv.stride[1] + f];
        row[f] = sum;
    }
}
