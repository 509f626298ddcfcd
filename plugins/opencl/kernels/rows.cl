// The ops argmax_rows, top_k_rows and softmax. LANES work-items share a row. For argmax_rows and
// top_k_rows, a value and its place form one 64-bit key. Keys compare values as integers, so that
// subnormals count on every device. For equal values, the lower place has the larger key.
static inline ulong key_of(float x, uint place) {
    uint bits = as_uint(x);
    if ((bits & 0x7FFFFFFFu) == 0) bits = 0; // -0 counts as 0
    bits = (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
    return (ulong)bits << 32 | (0xFFFFFFFFu - place);
}

static inline uint place_of(ulong key) {
    return 0xFFFFFFFFu - (uint)key;
}

#if LANES == 1
#define KEY_ROOM(name)
#define ALL_LARGEST(x, room) (x)
#else
#define KEY_ROOM(name) __local ulong name[LANES]
#define ALL_LARGEST(x, room) all_largest(x, room)
static inline ulong all_largest(ulong x, __local ulong *room) {
    room[LANE] = x;
    SYNC;
    ulong largest = 0;
    for (uint i = 0; i < LANES; ++i)
        largest = max(largest, room[i]);
    SYNC;
    return largest;
}
#endif

__kernel void argmax_rows(Floats x, View xv, __global int *index, View indexv) {
    KEY_ROOM(room);
    const uint id = ROW_ID;
    SKIP_IF(id >= xv.shape[2]);
    Floats row = x + row_at(xv, id);
    ulong best = 0, broken = 0;
    for (uint e = LANE; e < xv.n; e += LANES) {
        best = max(best, key_of(row[e], e));
        if ((as_uint(row[e]) & 0x7F800000u) == 0x7F800000u) broken = 1;
    }
    best = ALL_LARGEST(best, room);
    broken = ALL_LARGEST(broken, room);
    if (LANE == 0) index[indexv.offset + id] = broken != 0 || xv.n == 0 ? -1 : (int)place_of(best);
}

// For each place of the result, finds the largest key that is below the previous key.
__kernel void top_k_rows(Floats x, View xv, __global float *values, View valuesv,
                         __global int *index, View indexv) {
    KEY_ROOM(room);
    const uint id = ROW_ID;
    SKIP_IF(id >= xv.shape[2]);
    Floats row = x + row_at(xv, id);
    __global float *out_values = values + row_at(valuesv, id);
    __global int *out_index = index + row_at(indexv, id);
    ulong broken = 0;
    for (uint e = LANE; e < xv.n; e += LANES)
        if (isnan(row[e])) broken = 1;
    broken = ALL_LARGEST(broken, room);
    ulong last = 0xFFFFFFFFFFFFFFFFul;
    for (uint i = 0; i < indexv.n; ++i) {
        ulong best = 0;
        for (uint e = LANE; e < xv.n && broken == 0; e += LANES) {
            const ulong key = key_of(row[e], e);
            best = key < last && key > best ? key : best;
        }
        best = ALL_LARGEST(best, room);
        last = best;
        if (LANE != 0) continue;
        out_index[i] = broken != 0 ? -1 : (int)place_of(best);
        out_values[i] = broken != 0 ? NAN_F : row[place_of(best)];
    }
}

// LANES work-items share a row. If all values of a row are -inf, the result is zeros.
__kernel void softmax(Floats x, View xv, __global float *out, View outv) {
    ROOM(room);
    const uint id = ROW_ID;
    SKIP_IF(id >= xv.shape[2]);
    const uint n = xv.n;
    Floats row = x + row_at(xv, id);
    __global float *to = out + row_at(outv, id);
    float largest = -INFINITY, broken = 0.0f;
    for (uint e = LANE; e < n; e += LANES) {
        largest = fmax(largest, row[e]);
        if (isnan(row[e])) broken = 1.0f;
    }
    largest = ALL_MAX(largest, room);
    broken = ALL_MAX(broken, room);
    float sum = 0.0f;
    const int nothing = largest == -INFINITY && broken == 0.0f;
    floatW many = 0.0f;
    for (uint c = LANE; c < n / W; c += LANES) {
        const floatW p = nothing ? (floatW)(0.0f) : exp(vloadW(c, row) - largest);
        vstoreW(p, c, to);
        many += p;
    }
    sum = sum_of(many);
    for (uint e = n / W * W + LANE; e < n; e += LANES) {
        const float p = nothing ? 0.0f : exp(row[e] - largest);
        to[e] = p;
        sum += p;
    }
    sum = ALL_SUM(sum, room);
    if (nothing) return;
    for (uint c = LANE; c < n / W; c += LANES)
        vstoreW(vloadW(c, to) / sum, c, to);
    for (uint e = n / W * W + LANE; e < n; e += LANES)
        to[e] /= sum;
}
