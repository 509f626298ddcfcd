#include "reference/check.hpp"

#include <cstring>
#include <limits>
#include <memory>

namespace keel::reference {
namespace {

// Returns the address of a source's row 0. Throws if the source exceeds its mapping.
const std::byte *rows_of(const keel_weight_source &source) {
    need_that(source.rows >= 0 && source.cols >= 0, "a weight source has a negative size");
    switch (source.dtype) {
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_F16:
    case KEEL_DTYPE_BF16:
    case KEEL_DTYPE_Q8_0:
    case KEEL_DTYPE_Q4_0:
    case KEEL_DTYPE_Q4_K:
    case KEEL_DTYPE_Q5_K:
    case KEEL_DTYPE_Q6_K: break;
    default: refuse(KEEL_E_UNSUPPORTED, std::string("weights of ") + keel_dtype_name(source.dtype));
    }
    need_that(source.cols % keel_dtype_block(source.dtype) == 0,
              "the number of columns of a weight must be a multiple of its "
              "dtype's block");
    const __int128 bytes = static_cast<__int128>(source.cols / keel_dtype_block(source.dtype)) *
                           keel_dtype_bytes(source.dtype) * source.rows;
    need_that(source.offset <= source.mapping_bytes &&
                  bytes <= static_cast<__int128>(source.mapping_bytes - source.offset),
              "a weight source does not fit into its mapping");
    return static_cast<const std::byte *>(source.mapping) + source.offset;
}

// Uses the sources of a weight with experts in place, because they may have most of a model's
// bytes.
void add_parts(const keel_weight_desc &desc, Weight &weight) {
    weight.experts = desc.experts;
    need_that(
        desc.join == KEEL_JOIN_ROWS && desc.n_sources % desc.experts == 0,
        "the sources of a weight with experts must be joined by rows, with the same number of "
        "sources for each expert");
    const uint32_t each = desc.n_sources / desc.experts;
    int64_t rows = 0;
    for (uint32_t i = 0; i < desc.n_sources; ++i) {
        weight.parts.push_back({rows_of(*desc.sources[i]), desc.sources[i]->rows});
        rows += desc.sources[i]->rows;
        need_that((i + 1) % each != 0 || rows == weight.rows / desc.experts * ((i + 1) / each),
                  "the experts of a weight must have equal numbers of rows");
    }
}

std::unique_ptr<Weight> join(const keel_weight_desc &desc) {
    need_that(desc.n_sources > 0 && desc.sources != nullptr, "a weight has no sources");
    auto weight = std::make_unique<Weight>();
    const keel_weight_source &first = *desc.sources[0];
    weight->dtype = first.dtype;
    weight->cols = first.cols;
    for (uint32_t i = 0; i < desc.n_sources; ++i) {
        const keel_weight_source &source = *desc.sources[i];
        rows_of(source);
        need_that(source.dtype == first.dtype && source.cols == first.cols,
                  "the sources of a weight must have one dtype and one number of columns");
        need_that(desc.join != KEEL_JOIN_INTERLEAVE || source.rows == first.rows,
                  "the interleaved sources of a weight must have equal numbers of rows");
        need_that(source.rows <= std::numeric_limits<int64_t>::max() - weight->rows,
                  "a weight has too many rows");
        weight->rows += source.rows;
    }
    if (desc.experts != 0) {
        add_parts(desc, *weight);
        return weight;
    }
    if (desc.n_sources == 1) {
        weight->data = rows_of(first);
        return weight;
    }
    const uint64_t row_bytes = keel_dtype_row_bytes(first.dtype, static_cast<uint64_t>(first.cols));
    weight->joined.resize(row_bytes * static_cast<uint64_t>(weight->rows));
    std::byte *out = weight->joined.data();
    if (desc.join == KEEL_JOIN_INTERLEAVE) {
        for (int64_t row = 0; row < first.rows; ++row) {
            for (uint32_t i = 0; i < desc.n_sources; ++i, out += row_bytes) {
                std::memcpy(out, rows_of(*desc.sources[i]) + static_cast<uint64_t>(row) * row_bytes,
                            row_bytes);
            }
        }
    } else {
        for (uint32_t i = 0; i < desc.n_sources; ++i) {
            const uint64_t bytes = row_bytes * static_cast<uint64_t>(desc.sources[i]->rows);
            if (bytes != 0) std::memcpy(out, rows_of(*desc.sources[i]), bytes);
            out += bytes;
        }
    }
    weight->data = weight->joined.data();
    return weight;
}

keel_status KEEL_CALL weight_prepare(keel_ctx *ctx, const keel_weight_desc *theirs,
                                     keel_weight **out) {
    *out = nullptr;
    return guarded(&of(ctx), [&] {
        keel_weight_desc desc;
        need_that(keel_adopt(&desc, sizeof(desc), theirs, KEEL_PREFIX(keel_weight_desc, use)) ==
                      KEEL_OK,
                  "the weight description has another ABI version or is too small");
        if (desc.join != KEEL_JOIN_ROWS && desc.join != KEEL_JOIN_INTERLEAVE)
            refuse(KEEL_E_UNSUPPORTED, "keel_weight_desc.join: unknown value, expected "
                                       "KEEL_JOIN_ROWS or KEEL_JOIN_INTERLEAVE");
        constexpr uint32_t known = KEEL_USE_MATMUL | KEEL_USE_EMBED | KEEL_USE_EXPERTS;
        if ((desc.use & ~known) != 0) refuse(KEEL_E_UNSUPPORTED, "the weight has unknown use bits");
        need_that((desc.experts != 0) == (desc.use == KEEL_USE_EXPERTS),
                  "keel_weight_desc.experts must be set if use is KEEL_USE_EXPERTS, and only then");
        auto weight = join(desc);
        of(ctx).bytes += weight->joined.size();
        *out = reinterpret_cast<keel_weight *>(weight.release());
    });
}

void KEEL_CALL weight_destroy(keel_ctx *ctx, keel_weight *weight) {
    if (weight == nullptr) return;
    of(ctx).bytes -= of(weight).joined.size();
    delete &of(weight);
}

keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *handle, keel_weight_info *out) {
    const Weight &weight = of(handle);
    keel_weight_info info = {};
    info.rows = weight.rows;
    info.cols = weight.cols;
    info.bytes = keel_dtype_row_bytes(weight.dtype, static_cast<uint64_t>(weight.cols)) *
                 static_cast<uint64_t>(weight.rows);
    info.source_needed = weight.joined.empty() ? 1 : 0;
    info.dtype = weight.dtype;
    const std::string layout = std::string(keel_dtype_name(weight.dtype)) +
                               (weight.joined.empty() ? ", in place" : ", joined");
    layout.copy(info.layout, sizeof(info.layout) - 1);
    keel_emit(out, &info, sizeof(info));
    return KEEL_OK;
}

} // namespace

void fill_weight_slots(keel_backend &table) {
    table.weight_prepare = weight_prepare;
    table.weight_destroy = weight_destroy;
    table.weight_info = weight_info;
}

} // namespace keel::reference
