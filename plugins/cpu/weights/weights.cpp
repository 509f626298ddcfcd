#include "cpu/weights/weights.hpp"

#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"
#include "cpu/weights/copy.hpp"
#include "cpu/weights/layout.hpp"

#include <new>
#include <stdio.h>
#include <string.h>

namespace keel_cpu {
namespace {

const char *type_name(WeightType t) { return weight_type_names[static_cast<int>(t)]; }

keel_dtype dtype_of(WeightType t) {
    constexpr keel_dtype dtypes[weight_types] = {KEEL_DTYPE_F32,  KEEL_DTYPE_F16,  KEEL_DTYPE_BF16,
                                                 KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q4_K,
                                                 KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K};
    return dtypes[static_cast<int>(t)];
}

// Fills w->view.sources, the list of arrays that hold the weight's rows.
keel_status list_sources(keel_ctx *ctx, const keel_weight_desc *desc, keel_weight *w) {
    w->sources = memory_alloc(ctx->host, desc->n_sources * sizeof(RowSource));
    if (w->sources.data == nullptr)
        return fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "not enough memory for a weight");
    RowSource *list = reinterpret_cast<RowSource *>(w->sources.data);
    for (uint32_t i = 0; i < desc->n_sources; ++i) {
        const keel_weight_source *s = desc->sources[i];
        const int64_t row_bytes =
            static_cast<int64_t>(keel_dtype_row_bytes(s->dtype, static_cast<uint64_t>(s->cols)));
        list[i] = {static_cast<const uint8_t *>(s->mapping) + s->offset, row_bytes, s->rows};
    }
    w->view.sources = list;
    w->view.n_sources = desc->n_sources;
    w->view.alternate = desc->join == KEEL_JOIN_INTERLEAVE;
    return KEEL_OK;
}

// Divides the groups of a weight into pieces. Workers take the pieces one after the other.
struct Pieces {
    int64_t groups, group_bytes, bytes, shift, count;
    int64_t begin(int64_t piece) const {
        const int64_t g = (piece * bytes - shift + group_bytes - 1) / group_bytes;
        return piece == 0 ? 0 : piece >= count || g > groups ? groups : g;
    }
};

// A piece ends at the boundary of a huge page. Otherwise two workers could access the same new page
// first at the same time, and the system would clear it twice.
Pieces pieces_of(const Memory &packed, int64_t group_bytes, int64_t groups) {
    constexpr int64_t huge = 2 << 20;
    if (group_bytes == 0) return {groups, 1, 1, 0, 1};
    const auto bytes = static_cast<int64_t>(packed.bytes);
    const int64_t piece = bytes >= 2 * huge ? huge : bytes / 16 + group_bytes;
    const auto shift = static_cast<int64_t>(reinterpret_cast<uintptr_t>(packed.data) %
                                            static_cast<uint64_t>(huge));
    return {groups, group_bytes, piece, piece == huge ? shift : 0,
            (bytes + (piece == huge ? shift : 0) + piece - 1) / piece};
}

// Checks a description: types and shapes, and that each source is inside its mapping. Sets `type`.
keel_status check_weight(keel_ctx *ctx, const keel_weight_desc *desc, WeightType &type) {
    const keel_host *host = ctx->host;
    if (desc->n_sources == 0)
        return fail(host, KEEL_E_INVALID_ARG, "weight: expected at least one source, found none");
    if (desc->join > KEEL_JOIN_INTERLEAVE)
        return fail(host, KEEL_E_UNSUPPORTED, "weight: unknown join %u", desc->join);
    const keel_weight_source *first = desc->sources[0];
    if (!weight_type_of(first->dtype, type))
        return fail(host, KEEL_E_UNSUPPORTED,
                    "weight: dtype %s (%u) is not f32, f16, bf16, q8_0, q4_0, q4_k, q5_k or q6_k",
                    keel_dtype_name(first->dtype), first->dtype);
    for (uint32_t i = 0; i < desc->n_sources; ++i) {
        const keel_weight_source *s = desc->sources[i];
        if (s->dtype != first->dtype || s->cols != first->cols || s->rows < 0 || s->cols < 0)
            return fail(host, KEEL_E_INVALID_ARG,
                        "weight: sources must have one dtype and one number of columns; "
                        "source %u is %s [%lld, %lld], source 0 is %s [%lld, %lld]",
                        i, keel_dtype_name(s->dtype), (long long)s->rows, (long long)s->cols,
                        keel_dtype_name(first->dtype), (long long)first->rows,
                        (long long)first->cols);
        if (desc->join == KEEL_JOIN_INTERLEAVE && s->rows != first->rows)
            return fail(host, KEEL_E_INVALID_ARG,
                        "weight: interleaved sources must have equal numbers of rows; "
                        "source 0 has %lld, source %u has %lld",
                        (long long)first->rows, i, (long long)s->rows);
        if (s->cols % keel_dtype_block(s->dtype) != 0)
            return fail(host, KEEL_E_INVALID_ARG,
                        "weight: %lld columns do not consist of whole %s blocks of %u elements",
                        (long long)s->cols, keel_dtype_name(s->dtype), keel_dtype_block(s->dtype));
        const uint64_t row_bytes = keel_dtype_row_bytes(s->dtype, static_cast<uint64_t>(s->cols));
        const uint64_t room = s->offset <= s->mapping_bytes ? s->mapping_bytes - s->offset : 0;
        if (row_bytes != 0 && static_cast<uint64_t>(s->rows) > room / row_bytes)
            return fail(host, KEEL_E_INVALID_ARG,
                        "weight: source %u does not fit into its mapping of %llu bytes", i,
                        (unsigned long long)s->mapping_bytes);
    }
    return KEEL_OK;
}

// Checks the sources of a weight with experts: each expert has the same number of sources and rows.
keel_status check_experts(keel_ctx *ctx, const keel_weight_desc *desc) {
    const bool wanted = (desc->use & KEEL_USE_EXPERTS) != 0;
    if (wanted != (desc->experts != 0) || (wanted && desc->use != KEEL_USE_EXPERTS))
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "weight: expected a number of experts with KEEL_USE_EXPERTS alone, found %u "
                    "experts and use %u",
                    desc->experts, desc->use);
    if (!wanted) return KEEL_OK;
    if (desc->join != KEEL_JOIN_ROWS || desc->n_sources % desc->experts != 0)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "weight: expected the same number of sources for each of %u experts, joined by "
                    "rows; found %u sources",
                    desc->experts, desc->n_sources);
    const uint32_t each = desc->n_sources / desc->experts;
    int64_t first = 0;
    for (uint32_t e = 0; e < desc->experts; ++e) {
        int64_t rows = 0;
        for (uint32_t i = 0; i < each; ++i) rows += desc->sources[e * each + i]->rows;
        if (e == 0) first = rows;
        if (rows != first)
            return fail(ctx->host, KEEL_E_INVALID_ARG,
                        "weight: expert %u has %lld rows, expert 0 has %lld", e, (long long)rows,
                        (long long)first);
    }
    return KEEL_OK;
}

// Returns true if weight_prepare stores this weight in the interleaved layout.
bool is_interleaved(WeightType type, uint32_t use) {
    // A weight that only the op embed reads is not interleaved, because embed reads single rows
    // fast in any layout.
    return is_quantized(type) && (use & (KEEL_USE_MATMUL | KEEL_USE_EXPERTS)) != 0;
}

// Returns the number of interleaved groups for the rows of a weight. The rows of each expert begin
// with a new group. The next function returns the bytes of one group.
int64_t groups_of(const keel_weight *w, int64_t group) {
    const int64_t experts = w->experts == 0 ? 1 : w->experts;
    return experts * ((w->view.rows / experts + group - 1) / group);
}

int64_t group_bytes_of(const WeightView &view, int64_t group) {
    const BlockForm form = block_form(view.type);
    return view.cols / form.columns * form.bytes() * group;
}

// Makes a weight without rows. Its shape is the shape of all sources of the description joined.
// Returns NULL if there is no memory.
keel_weight *new_weight(keel_ctx *ctx, const keel_weight_desc *desc, WeightType type) {
    void *place = ctx->host->alloc(ctx->host, sizeof(keel_weight), alignof(keel_weight));
    if (place == nullptr) return nullptr;
    keel_weight *w = new (place) keel_weight{};
    w->view.type = type;
    w->view.layout = Layout::rows;
    w->view.cols = desc->sources[0]->cols;
    for (uint32_t i = 0; i < desc->n_sources; ++i) w->view.rows += desc->sources[i]->rows;
    w->use = desc->use;
    w->experts = desc->experts;
    return w;
}

// Stores the rows of w->view in new memory, as interleaved groups for the context's kernels.
keel_status interleave(keel_ctx *ctx, keel_weight *w) {
    const int64_t group = ctx->matmul->group, groups = groups_of(w, group);
    WeightView packed = w->view;
    packed.layout = Layout::interleaved;
    packed.group_bytes = group_bytes_of(w->view, group);
    packed.sources = nullptr;
    packed.n_sources = 0;
    w->packed = weight_alloc(ctx, static_cast<uint64_t>(groups * packed.group_bytes), w->slab);
    if (w->packed.data == nullptr)
        return fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "not enough memory for a weight of %lld bytes",
                    (long long)(groups * packed.group_bytes));
    packed.packed = w->packed.data;
    const Pieces pieces = pieces_of(w->packed, packed.group_bytes, groups);
    const int64_t experts = w->experts == 0 ? 1 : w->experts, each = groups / experts;
    int64_t next = 0;
    int32_t stopped = 0;
    const keel_status status = parallel(ctx, workers_for(ctx, w->packed.bytes), [&](const Team &) {
        for (;;) {
            const int64_t piece = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
            if (piece >= pieces.count || __atomic_load_n(&stopped, __ATOMIC_RELAXED) != 0) return;
            if (ctx->host->cancelled(ctx->host) != 0)
                __atomic_store_n(&stopped, 1, __ATOMIC_RELAXED);
            for (int64_t g = pieces.begin(piece); g < pieces.begin(piece + 1); ++g) {
                RowSource source{};
                const WeightView own = expert_view(w->view, experts, g / each, group, source);
                make_group(own, group, g % each, w->packed.data + g * packed.group_bytes);
            }
        }
    });
    w->view = packed;
    memory_free(ctx->host, w->sources);
    if (status == KEEL_OK && stopped != 0) return KEEL_E_CANCELLED;
    return status;
}

} // namespace

bool weight_type_of(keel_dtype dtype, WeightType &type) {
    switch (dtype) {
    case KEEL_DTYPE_F32: type = WeightType::f32; return true;
    case KEEL_DTYPE_F16: type = WeightType::f16; return true;
    case KEEL_DTYPE_BF16: type = WeightType::bf16; return true;
    case KEEL_DTYPE_Q8_0: type = WeightType::q8_0; return true;
    case KEEL_DTYPE_Q4_0: type = WeightType::q4_0; return true;
    case KEEL_DTYPE_Q4_K: type = WeightType::q4_k; return true;
    case KEEL_DTYPE_Q5_K: type = WeightType::q5_k; return true;
    case KEEL_DTYPE_Q6_K: type = WeightType::q6_k; return true;
    default: return false;
    }
}

WeightView expert_view(const WeightView &all, int64_t experts, int64_t e, int64_t group,
                       RowSource &source) {
    WeightView own = all;
    own.rows = all.rows / experts;
    if (all.layout == Layout::interleaved) {
        own.packed += e * ((own.rows + group - 1) / group) * all.group_bytes;
    } else if (all.n_sources == 1) {
        source = {all.sources->data + e * own.rows * all.sources->stride, all.sources->stride,
                  own.rows};
        own.sources = &source;
    } else if (experts > 1) {
        own.n_sources = all.n_sources / static_cast<uint32_t>(experts);
        own.sources = all.sources + e * own.n_sources;
    }
    return own;
}

bool view_tensor(const keel_tensor *w, RowSource &source, WeightView &view) {
    view = {};
    if (!weight_type_of(w->dtype, view.type)) return false;
    view.layout = Layout::rows;
    view.rows = w->shape[0];
    view.cols = w->shape[1];
    source = {w->buffer != nullptr ? data_of(w) : nullptr, w->stride[0], w->shape[0]};
    view.sources = &source;
    view.n_sources = 1;
    return true;
}

keel_status KEEL_CALL weight_prepare(keel_ctx *ctx, const keel_weight_desc *theirs,
                                     keel_weight **out) noexcept {
    *out = nullptr;
    keel_weight_desc mine;
    if (keel_adopt(&mine, sizeof mine, theirs, KEEL_PREFIX(keel_weight_desc, use)) != KEEL_OK)
        return fail(
            ctx->host, KEEL_E_INVALID_ARG,
            "the weight description has another ABI version; build the plugin for this Keel");
    const keel_weight_desc *desc = &mine;
    WeightType type = WeightType::f32;
    keel_status status = check_weight(ctx, desc, type);
    if (status == KEEL_OK) status = check_experts(ctx, desc);
    if (status != KEEL_OK) return status;
    keel_weight *w = new_weight(ctx, desc, type);
    if (w == nullptr)
        return fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "not enough memory for a weight");
    status = list_sources(ctx, desc, w);
    const bool half = type == WeightType::f16 || type == WeightType::bf16;
    if (status == KEEL_OK && is_interleaved(type, desc->use))
        status = interleave(ctx, w);
    else if (status == KEEL_OK && half && (desc->use & (KEEL_USE_MATMUL | KEEL_USE_EXPERTS)) != 0)
        status = copy_rows(ctx, w);
    if (status != KEEL_OK) {
        weight_free(ctx, w->packed, w->slab);
        memory_free(ctx->host, w->sources);
        ctx->host->free(ctx->host, w);
        return status;
    }
    ctx->weight_bytes += w->packed.bytes + w->sources.bytes;
    *out = w;
    return KEEL_OK;
}

void KEEL_CALL weight_destroy(keel_ctx *ctx, keel_weight *w) noexcept {
    if (w == nullptr) return;
    ctx->weight_bytes -= w->packed.bytes + w->sources.bytes;
    weight_free(ctx, w->packed, w->slab);
    memory_free(ctx->host, w->sources);
    ctx->host->free(ctx->host, w);
}

keel_status KEEL_CALL weight_info(keel_ctx *ctx, const keel_weight *w,
                                  keel_weight_info *out) noexcept {
    keel_weight_info info = make_out<keel_weight_info>();
    info.rows = w->view.rows;
    info.cols = w->view.cols;
    info.dtype = dtype_of(w->view.type);
    info.source_needed = w->packed.data == nullptr;
    if (w->view.layout == Layout::interleaved) {
        info.bytes = static_cast<uint64_t>(groups_of(w, ctx->matmul->group) * w->view.group_bytes);
        snprintf(info.layout, sizeof info.layout, "%s, %lld rows interleaved",
                 type_name(w->view.type), (long long)ctx->matmul->group);
    } else {
        info.bytes = static_cast<uint64_t>(info.rows) *
                     keel_dtype_row_bytes(info.dtype, static_cast<uint64_t>(info.cols));
        snprintf(info.layout, sizeof info.layout, "%s, %s", type_name(w->view.type),
                 w->packed.data == nullptr ? "in place" : "copied");
    }
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_cpu
