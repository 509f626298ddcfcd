#include "gpu/weights.hpp"

#include <string.h>

namespace keel_gpu {

WeightShape check_weight(const keel_host *host, const keel_weight_desc &desc) {
    if (desc.n_sources == 0 || desc.sources == nullptr)
        refuse(host, KEEL_E_INVALID_ARG, "weight: expected at least one source, found none");
    if (desc.join > KEEL_JOIN_INTERLEAVE)
        refuse(host, KEEL_E_UNSUPPORTED, "weight: unknown join %u", desc.join);
    if ((desc.use & ~uint32_t{KEEL_USE_MATMUL | KEEL_USE_EMBED}) != 0)
        refuse(host, KEEL_E_UNSUPPORTED, "weight: unknown use bits 0x%x", desc.use);
    const keel_weight_source &first = *desc.sources[0];
    WeightShape shape;
    if (!type_of(first.dtype, shape.type))
        refuse(host, KEEL_E_UNSUPPORTED,
               "weight: dtype %s (%u) is not f32, f16, bf16, q8_0 or q4_0",
               keel_dtype_name(first.dtype), first.dtype);
    shape.cols = first.cols;
    for (uint32_t i = 0; i < desc.n_sources; ++i) {
        const keel_weight_source &s = *desc.sources[i];
        if (s.dtype != first.dtype || s.cols != first.cols || s.rows < 0 || s.cols < 0)
            refuse(host, KEEL_E_INVALID_ARG,
                   "weight: sources must have one dtype and one number of columns; "
                   "source %u is %s [%lld, %lld], source 0 is %s [%lld, %lld]",
                   i, keel_dtype_name(s.dtype), static_cast<long long>(s.rows),
                   static_cast<long long>(s.cols), keel_dtype_name(first.dtype),
                   static_cast<long long>(first.rows), static_cast<long long>(first.cols));
        if (desc.join == KEEL_JOIN_INTERLEAVE && s.rows != first.rows)
            refuse(host, KEEL_E_INVALID_ARG,
                   "weight: interleaved sources must have equal numbers of rows; "
                   "source 0 has %lld, source %u has %lld",
                   static_cast<long long>(first.rows), i, static_cast<long long>(s.rows));
        if (s.cols % keel_dtype_block(s.dtype) != 0)
            refuse(host, KEEL_E_INVALID_ARG,
                   "weight: %lld columns do not consist of whole %s blocks of %u elements",
                   static_cast<long long>(s.cols), keel_dtype_name(s.dtype),
                   keel_dtype_block(s.dtype));
        const uint64_t row = keel_dtype_row_bytes(s.dtype, static_cast<uint64_t>(s.cols));
        const uint64_t room = s.offset <= s.mapping_bytes ? s.mapping_bytes - s.offset : 0;
        if (row != 0 && static_cast<uint64_t>(s.rows) > room / row)
            refuse(host, KEEL_E_INVALID_ARG,
                   "weight: source %u does not fit into its mapping of %llu bytes", i,
                   static_cast<unsigned long long>(s.mapping_bytes));
        shape.rows += s.rows;
        if (shape.rows > INT32_MAX || shape.cols > INT32_MAX)
            refuse(host, KEEL_E_UNSUPPORTED,
                   "weight: %lld rows of %lld columns; this backend supports at most "
                   "2147483647 of each",
                   static_cast<long long>(shape.rows), static_cast<long long>(shape.cols));
    }
    return shape;
}

const uint8_t *source_row(const keel_weight_desc &desc, int64_t row) {
    const keel_weight_source *s = desc.sources[0];
    if (desc.join == KEEL_JOIN_INTERLEAVE) {
        s = desc.sources[row % desc.n_sources];
        row /= desc.n_sources;
    } else {
        for (uint32_t i = 0; row >= s->rows && i + 1 < desc.n_sources; s = desc.sources[++i])
            row -= s->rows;
    }
    return static_cast<const uint8_t *>(s->mapping) + s->offset +
           static_cast<uint64_t>(row) *
               keel_dtype_row_bytes(s->dtype, static_cast<uint64_t>(s->cols));
}

void copy_rows(const keel_weight_desc &desc, const WeightShape &shape, int64_t first, int64_t n,
               uint8_t *to) {
    const uint64_t bytes = shape.row_bytes();
    for (int64_t r = 0; r < n && bytes != 0; ++r)
        memcpy(to + static_cast<uint64_t>(r) * bytes, source_row(desc, first + r), bytes);
}

void split_rows(const keel_weight_desc &desc, const WeightShape &shape, int64_t first, int64_t n,
                uint8_t *codes, uint8_t *scales) {
    const size_t data = shape.type == type_q8_0 ? 32 : 16;
    for (int64_t r = 0; r < n; ++r) {
        const uint8_t *in = source_row(desc, first + r);
        for (uint64_t b = 0; b < shape.blocks(); ++b, in += data + 2, codes += data, scales += 2) {
            memcpy(scales, in, 2);
            memcpy(codes, in + 2, data);
        }
    }
}

} // namespace keel_gpu
