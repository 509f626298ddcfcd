// The ops cast, copy, transpose and zero. In a cast, a work-item handles 32 elements of a row. In
// the other ops, a work-item handles a piece of 16 units of UNIT bytes. Its second index is the
// row, and its first index is the number of the piece.
#if UNIT == 4
typedef uint Word;
#elif UNIT == 2
typedef ushort Word;
#else
typedef uchar Word;
#endif

// Copies row r of x to row r of out. If `swapped` is set, the two outer dimensions of out are
// exchanged. If `clear` is set, writes zeros.
__kernel void move(__global const Word *x, View xv, __global Word *out, View outv, uint swapped,
                   uint clear) {
    const uint begin = (uint)get_global_id(0) * 16, row = (uint)get_global_id(1);
    if (begin >= outv.n || row >= outv.shape[0] * outv.shape[1] * outv.shape[2]) return;
    const uint count = min(16u, outv.n - begin);
    __global Word *to = out + row_at(outv, row) + begin;
    if (clear) {
        for (uint e = 0; e < count; ++e)
            to[e] = 0;
        return;
    }
    // Rows are counted in the order of out, which is (b, a) if `swapped` is set.
    const uint b = row / outv.shape[2], a = row % outv.shape[2];
    __global const Word *from =
        x + (swapped ? xv.offset + a * xv.stride[1] + b * xv.stride[2] : row_at(xv, row)) + begin;
    for (uint e = 0; e < count; ++e)
        to[e] = from[e];
}

__kernel void cast(Bytes x, View xv, uint from, OutBytes out, View outv, uint to) {
    const uint begin = (uint)get_global_id(0) * 32, row = (uint)get_global_id(1), n = xv.n;
    if (begin >= n || row >= xv.shape[0] * xv.shape[1] * xv.shape[2]) return;
    const uint count = min(32u, n - begin);
    Bytes in = x + (ulong)(from == F32 ? 4 : 2) * row_at(xv, row);
    OutBytes at = out + (ulong)(to == F32 ? 4 : 2) * row_at(outv, row);
    if (to >= Q8_0) {
        float block[32];
        for (uint e = 0; e < 32; ++e)
            block[e] = ((Floats)in)[begin + e];
        store_block(block, to, at + begin / 32 * (to == Q8_0 ? 34 : 18));
        return;
    }
    for (uint e = begin; e < begin + count; ++e) {
        if (from == to && from == F32)
            ((__global uint *)at)[e] = ((__global const uint *)in)[e];
        else if (from == to)
            ((__global ushort *)at)[e] = ((__global const ushort *)in)[e];
        else if (to == F32)
            ((__global float *)at)[e] = load_one(in, from, e);
        else if (to == F16)
            vstore_half_rte(load_one(in, from, e), e, (__global half *)at);
        else
            ((__global ushort *)at)[e] = float_bf16(load_one(in, from, e));
    }
}
