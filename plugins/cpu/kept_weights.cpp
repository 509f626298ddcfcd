// keel.weight_layout/1: weights that a file keeps in the interleaved layout.
#include "extensions.hpp"
#include "ops.hpp"
#include "weight_layout.hpp"
#include "weights.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

constexpr uint64_t cache_line = 64;

keel_status adopt(keel_ctx *ctx, const keel_weight_desc *theirs, keel_weight_desc &mine, WeightType &type) {
    if (keel_adopt(&mine, sizeof mine, theirs, KEEL_PREFIX(keel_weight_desc, use)) != KEEL_OK)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "a weight description of another ABI version");
    return check_weight(ctx, &mine, false, type);
}

// The kept bytes as a view in groups of `group`, which the name says.
keel_status view_kept(keel_ctx *ctx, const keel_weight_desc *theirs, const keel_laid_out *kept,
                      keel_weight_desc &desc, WeightView &view, int64_t &group) {
    keel_laid_out laid;
    if (keel_adopt(&laid, sizeof laid, kept, KEEL_PREFIX(keel_laid_out, bytes)) != KEEL_OK ||
        laid.name == nullptr)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "kept weight: no layout is named, or another ABI version");
    WeightType type = WeightType::f32;
    const keel_status status = adopt(ctx, theirs, desc, type);
    if (status != KEEL_OK) return status;
    group = layout_group(laid.name);
    if (group == 0 || !is_quantized(type))
        return fail(
            ctx->host, KEEL_E_UNSUPPORTED,
            "layout '%.63s' of %s is not read here; read are cpu/interleaved-N/%d, N from 4 to %d, of "
            "quantized types",
            laid.name, weight_type_names[static_cast<int>(type)], interleaved_version,
            static_cast<int>(most_group));
    if (laid.mapping == nullptr || laid.offset > laid.mapping_bytes ||
        laid.bytes > laid.mapping_bytes - laid.offset)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "kept weight: it reaches beyond its mapping of %llu bytes",
                    (unsigned long long)laid.mapping_bytes);
    view = {};
    view.type = type;
    view.layout = Layout::interleaved;
    view.cols = desc.sources[0]->cols;
    // Rows and columns may be anything that a file says.
    const uint64_t row_bytes = keel_dtype_row_bytes(desc.sources[0]->dtype, static_cast<uint64_t>(view.cols));
    const uint64_t most_rows = row_bytes == 0 ? 0 : laid.bytes / row_bytes;
    uint64_t rows = 0;
    for (uint32_t i = 0; i < desc.n_sources && rows <= most_rows; ++i)
        rows += static_cast<uint64_t>(desc.sources[i]->rows);
    const uint64_t needed = rows > most_rows
                                ? 0
                                : (rows + static_cast<uint64_t>(group) - 1) / static_cast<uint64_t>(group) *
                                      static_cast<uint64_t>(group) * row_bytes;
    if (rows > most_rows || rows == 0 || needed != laid.bytes)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "kept weight of %lld columns: %llu bytes in layout '%s' are not those of its rows",
                    (long long)view.cols, (unsigned long long)laid.bytes, laid.name);
    view.rows = static_cast<int64_t>(rows);
    view.packed = static_cast<const uint8_t *>(laid.mapping) + laid.offset;
    view.group_bytes = group_bytes_of(view, group);
    return KEEL_OK;
}

keel_status KEEL_CALL describe(keel_ctx *ctx, const keel_weight_desc *theirs,
                               keel_weight_layout_info *out) noexcept {
    keel_weight_desc desc;
    WeightType type = WeightType::f32;
    const keel_status status = adopt(ctx, theirs, desc, type);
    if (status != KEEL_OK) return status;
    keel_weight_layout_info info = make_out<keel_weight_layout_info>();
    info.align = cache_line;
    if (is_interleaved(type, desc.use)) {
        WeightView view = {};
        view.type = type;
        view.cols = desc.sources[0]->cols;
        for (uint32_t i = 0; i < desc.n_sources; ++i)
            view.rows += desc.sources[i]->rows;
        const int64_t group = ctx->linear->group;
        layout_name(group, info.name);
        info.bytes = static_cast<uint64_t>(groups_of(view, group) * group_bytes_of(view, group));
    }
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

keel_status KEEL_CALL keep(keel_ctx *ctx, const keel_weight *w, uint64_t offset, void *dst,
                           uint64_t n) noexcept {
    if (w->view.layout != Layout::interleaved)
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "a weight that is read in place has no layout to keep");
    const auto bytes = static_cast<uint64_t>(groups_of(w->view, ctx->linear->group) * w->view.group_bytes);
    if (offset > bytes || n > bytes - offset)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "bytes %llu to %llu of a weight of %llu",
                    (unsigned long long)offset, (unsigned long long)(offset + n), (unsigned long long)bytes);
    memcpy(dst, w->view.packed + offset, n);
    return KEEL_OK;
}

keel_status KEEL_CALL take(keel_ctx *ctx, const keel_weight_desc *theirs, const keel_laid_out *kept,
                           keel_weight **out) noexcept {
    *out = nullptr;
    keel_weight_desc desc;
    WeightView view;
    int64_t group = 0;
    keel_status status = view_kept(ctx, theirs, kept, desc, view, group);
    if (status != KEEL_OK) return status;
    keel_weight *w = new_weight(ctx, &desc, view.type);
    if (w == nullptr) return fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "no memory for a weight");
    w->view = view;
    // Made for another instruction set: as good, once its rows stand in groups of this one's size. And kernels read whole cache lines.
    if (group != ctx->linear->group || kept->offset % cache_line != 0) status = interleave(ctx, w, group);
    if (status != KEEL_OK) {
        weight_free(ctx, w->packed, w->slab);
        ctx->host->free(ctx->host, w);
        return status;
    }
    ctx->weight_bytes += w->packed.bytes;
    *out = w;
    return KEEL_OK;
}

keel_status KEEL_CALL rows(keel_ctx *ctx, const keel_weight_desc *theirs, const keel_laid_out *kept,
                           int64_t first, int64_t count, void *dst) noexcept {
    keel_weight_desc desc;
    WeightView view;
    int64_t group = 0;
    const keel_status status = view_kept(ctx, theirs, kept, desc, view, group);
    if (status != KEEL_OK) return status;
    if (first < 0 || count < 0 || first > view.rows || count > view.rows - first)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "%lld rows from row %lld on of %lld", (long long)count,
                    (long long)first, (long long)view.rows);
    const int64_t row_bytes = view.group_bytes / group;
    auto *to = static_cast<uint8_t *>(dst);
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(count * row_bytes)), [&](const Team &team) {
        const Range mine = share(count, 1, team);
        for (int64_t r = mine.begin; r < mine.end; ++r)
            row_of_groups(view, group, first + r, to + r * row_bytes);
    });
}

constexpr keel_weight_layout make_table() {
    keel_weight_layout t{};
    t.h = KEEL_HEADER(keel_weight_layout);
    t.describe = describe;
    t.keep = keep;
    t.take = take;
    t.rows = rows;
    return t;
}

} // namespace

constinit const keel_weight_layout weight_layout = make_table();

} // namespace keel_cpu
