// The op rope. LANES work-items share the row of a head, which has at most MAX_DIM elements.
__kernel void rope(Floats x, View xv, Ints positions, Positions place, uint group, Rope rope_,
                   Floats cos_table, Floats sin_table, float sign, __global float *out, View outv) {
    SHARED float row[MAX_DIM];
    const uint id = ROW_ID, heads = xv.shape[2];
    SKIP_IF(id >= xv.shape[1] * heads);
    const uint token = id / heads, head = id % heads;
    Floats from = x + row_at(xv, id);
    for (uint e = LANE; e < xv.n; e += LANES)
        row[e] = from[e];
    SYNC;
    const int position =
        positions[place.offset + token * place.token_stride + head / group * place.head_stride];
    rotate_row(row, rope_, rope_.half_, cos_table, sin_table, table_row(rope_, position), sign);
    SYNC;
    __global float *to = out + row_at(outv, id);
    for (uint e = LANE; e < xv.n; e += LANES)
        to[e] = row[e];
}
