// The ops rms_norm, add_rms_norm and layer_norm. LANES work-items share a row.
#define SQUARES(row, n, sum)                                                                       \
    {                                                                                              \
        floatW many = 0.0f;                                                                        \
        for (uint c = LANE; c < (n) / W; c += LANES) {                                             \
            const floatW v = vloadW(c, row);                                                       \
            many += v * v;                                                                         \
        }                                                                                          \
        sum = sum_of(many);                                                                        \
        for (uint e = (n) / W * W + LANE; e < (n); e += LANES)                                     \
            sum += (row)[e] * (row)[e];                                                            \
    }

// With the macro ADD, first adds x to residual.
__kernel void rms_norm(Floats x, View xv, __global float *residual, View residualv, Floats weight,
                       uint weight_offset, float eps, __global float *out, View outv) {
    ROOM(room);
    const uint id = ROW_ID;
    SKIP_IF(id >= xv.shape[0] * xv.shape[1] * xv.shape[2]);
    const uint n = xv.n;
    Floats row = x + row_at(xv, id);
    __global float *to = out + row_at(outv, id);
    weight += weight_offset;
#if ADD
    __global float *sum_row = residual + row_at(residualv, id);
    for (uint c = LANE; c < n / W; c += LANES)
        vstoreW(vloadW(c, sum_row) + vloadW(c, row), c, sum_row);
    for (uint e = n / W * W + LANE; e < n; e += LANES)
        sum_row[e] += row[e];
    row = sum_row; // each lane reads only elements that the same lane wrote
#endif
    float sum;
    SQUARES(row, n, sum);
    sum = ALL_SUM(sum, room);
    const float scale = 1.0f / sqrt(sum / (float)n + eps);
    for (uint c = LANE; c < n / W; c += LANES)
        vstoreW(vloadW(c, row) * scale * vloadW(c, weight), c, to);
    for (uint e = n / W * W + LANE; e < n; e += LANES)
        to[e] = row[e] * scale * weight[e];
}

// Adds the bias if has_bias is set.
__kernel void layer_norm(Floats x, View xv, Floats weight, uint weight_offset, Floats bias,
                         uint bias_offset, uint has_bias, float eps, __global float *out,
                         View outv) {
    ROOM(room);
    const uint id = ROW_ID;
    SKIP_IF(id >= xv.shape[0] * xv.shape[1] * xv.shape[2]);
    const uint n = xv.n;
    Floats row = x + row_at(xv, id);
    __global float *to = out + row_at(outv, id);
    weight += weight_offset;
    bias += bias_offset;
    floatW many = 0.0f;
    for (uint c = LANE; c < n / W; c += LANES)
        many += vloadW(c, row);
    float sum = sum_of(many);
    for (uint e = n / W * W + LANE; e < n; e += LANES)
        sum += row[e];
    const float mean = ALL_SUM(sum, room) / (float)n;
    many = 0.0f;
    for (uint c = LANE; c < n / W; c += LANES) {
        const floatW v = vloadW(c, row) - mean;
        many += v * v;
    }
    sum = sum_of(many);
    for (uint e = n / W * W + LANE; e < n; e += LANES)
        sum += (row[e] - mean) * (row[e] - mean);
    const float scale = 1.0f / sqrt(ALL_SUM(sum, room) / (float)n + eps);
    for (uint c = LANE; c < n / W; c += LANES) {
        floatW y = (vloadW(c, row) - mean) * scale * vloadW(c, weight);
        if (has_bias) y += vloadW(c, bias);
        vstoreW(y, c, to);
    }
    for (uint e = n / W * W + LANE; e < n; e += LANES)
        to[e] = (row[e] - mean) * scale * weight[e] + (has_bias ? bias[e] : 0.0f);
}
