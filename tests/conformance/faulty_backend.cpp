#include "conformance/faulty_backend.hpp"

#include "conformance/side.hpp"
#include "reference/reference.hpp"

#include <keel/ext/draft/attention_dense.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

namespace keel::conformance {
namespace {

Fault fault_now = Fault::nothing;

const keel_backend &real() { return *reference_backend(); }

// Read and write one f32 of a tensor, at a byte offset from element 0.
float get(keel_ctx *ctx, const keel_tensor *t, int64_t at) {
    float value = 0;
    real().buffer_read(ctx, t->buffer, t->offset + static_cast<uint64_t>(at), &value,
                       sizeof(value));
    return value;
}

void put(keel_ctx *ctx, const keel_tensor *t, int64_t at, float value) {
    real().buffer_write(ctx, t->buffer, t->offset + static_cast<uint64_t>(at), &value,
                        sizeof(value));
}

bool is_plain_matrix(const keel_tensor *t) {
    return t->rank == 2 && t->dtype == KEEL_DTYPE_F32 && t->shape[0] > 0 && t->shape[1] > 0;
}

// Returns the byte offset of the last element of a matrix.
int64_t last_of(const keel_tensor *t) {
    return (t->shape[0] - 1) * t->stride[0] + 4 * (t->shape[1] - 1);
}

keel_status KEEL_CALL matmul(keel_ctx *ctx, const keel_matmul_args *a) {
    const keel_status status = real().matmul(ctx, a);
    if (status == KEEL_OK && a->out->shape[1] == 33 && is_plain_matrix(a->out)) {
        put(ctx, a->out, last_of(a->out), get(ctx, a->out, last_of(a->out)) * 1.001F + 1e-3F);
    }
    return status;
}

keel_status KEEL_CALL rms_norm(keel_ctx *ctx, const keel_norm_args *a) {
    const keel_status status = real().rms_norm(ctx, a);
    if (status != KEEL_OK || !is_plain_matrix(a->out)) return status;
    put(ctx, a->out, last_of(a->out), get(ctx, a->out, last_of(a->out)) * (1 + 3e-5F));
    return status;
}

keel_status KEEL_CALL scale(keel_ctx *ctx, const keel_elementwise_args *a) {
    const keel_status status = real().scale(ctx, a);
    if (status == KEEL_OK && is_plain_matrix(a->out)) put(ctx, a->out, last_of(a->out) + 4, 0.0F);
    return status;
}

// A plan of the faulty backend. It stores a number that may change after planning.
struct Settled {
    int64_t rows;
};

keel_status KEEL_CALL op_plan(keel_ctx *, keel_op op, const keel_op_args *args, keel_plan **out) {
    if ((args->features >> 8) != 0) return KEEL_E_UNSUPPORTED;
    const auto *a = reinterpret_cast<const keel_elementwise_args *>(args);
    *out = reinterpret_cast<keel_plan *>(new Settled{op == KEEL_OP_SCALE ? a->out->shape[0] : 0});
    return KEEL_OK;
}

void KEEL_CALL plan_destroy(keel_ctx *, keel_plan *plan) {
    delete reinterpret_cast<Settled *>(plan);
}

keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *, keel_plan_info *) { return KEEL_OK; }

keel_status KEEL_CALL scale_as_planned(keel_ctx *ctx, const keel_elementwise_args *theirs) {
    const auto *settled = reinterpret_cast<const Settled *>(theirs->plan);
    keel_elementwise_args a = *theirs;
    a.h = KEEL_HEADER(keel_elementwise_args);
    a.plan = nullptr;
    const keel_status status = real().scale(ctx, &a);
    if (status == KEEL_OK && settled != nullptr && is_plain_matrix(a.out) &&
        settled->rows != a.out->shape[0])
        put(ctx, a.out, last_of(a.out), 0.25F);
    return status;
}

keel_status KEEL_CALL copy(keel_ctx *ctx, const keel_move_args *a) {
    const keel_status status = real().copy(ctx, a);
    const bool gap = is_plain_matrix(a->out) && a->out->stride[0] > 4 * a->out->shape[1];
    const uint8_t byte = 0;
    if (status == KEEL_OK && gap) {
        real().buffer_write(ctx, a->out->buffer,
                            a->out->offset + 4 * static_cast<uint64_t>(a->out->shape[1]), &byte, 1);
    }
    return status;
}

keel_status KEEL_CALL add(keel_ctx *ctx, const keel_elementwise_args *a) {
    const keel_status status = real().add(ctx, a);
    if (status != KEEL_OK || !is_plain_matrix(a->out)) return status;
    if (fault_now == Fault::writes_to_input) put(ctx, a->a, 0, 0.25F);
    for (int64_t i = 0; i < a->out->shape[0] && fault_now == Fault::hides_nan; ++i) {
        for (int64_t j = 0; j < a->out->shape[1]; ++j) {
            const int64_t at = i * a->out->stride[0] + 4 * j;
            if (std::isnan(get(ctx, a->out, at))) put(ctx, a->out, at, 0.0F);
        }
    }
    return status;
}

keel_status KEEL_CALL silu_mul(keel_ctx *ctx, const keel_gate_args *theirs) {
    keel_gate_args a = *theirs;
    a.h = KEEL_HEADER(keel_gate_args);
    a.features &= KEEL_GATE_INTERLEAVED;
    return real().silu_mul(ctx, &a);
}

keel_status KEEL_CALL softmax(keel_ctx *ctx, const keel_move_args *a) {
    const keel_status status = real().softmax(ctx, a);
    return a->out->stride[0] > 4 * a->out->shape[1] ? keel_status{KEEL_E_UNSUPPORTED} : status;
}

keel_status KEEL_CALL attention(keel_ctx *ctx, const keel_attention_args *theirs) {
    keel_attention_args a = *theirs;
    if (a.q->shape[0] != 1) return real().attention(ctx, theirs);
    keel_kv_view view = *a.kv;
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), 4ull * view.kv_heads,
                             KEEL_BUFFER_DEVICE, 0, nullptr};
    keel_tensor lengths = *view.lengths;
    real().buffer_create(ctx, &desc, &lengths.buffer);
    lengths.offset = 0;
    for (uint32_t h = 0; h < view.kv_heads; ++h) { // up to the end of the last block
        int32_t length = 0;
        real().buffer_read(ctx, view.lengths->buffer, view.lengths->offset + 4 * h, &length, 4);
        const auto block = static_cast<int32_t>(view.block_slots);
        length = std::min<int32_t>((length + block - 1) / block * block,
                                   static_cast<int32_t>(view.max_length));
        real().buffer_write(ctx, lengths.buffer, 4 * h, &length, 4);
    }
    view.lengths = &lengths;
    a.kv = &view;
    a.features &= ~uint64_t{KEEL_ATTENTION_CAUSAL};
    const keel_status status = real().attention(ctx, &a);
    real().buffer_destroy(ctx, lengths.buffer);
    return status;
}

keel_status KEEL_CALL kv_append(keel_ctx *ctx, const keel_kv_append_args *theirs) {
    keel_kv_append_args a = *theirs;
    keel_kv_view view = *a.kv;
    const int64_t entries = view.block_table->shape[1];
    keel_tensor table = *view.block_table;
    std::vector<int32_t> ids(static_cast<size_t>(entries * view.kv_heads));
    for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<int32_t>(static_cast<int64_t>(i) % view.k->shape[0]);
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), 4 * ids.size(), KEEL_BUFFER_DEVICE, 0,
                             nullptr};
    real().buffer_create(ctx, &desc, &table.buffer);
    real().buffer_write(ctx, table.buffer, 0, ids.data(), 4 * ids.size());
    table.offset = 0;
    table.stride[0] = 4 * entries;
    view.block_table = &table;
    a.kv = &view;
    const keel_status status = real().kv_append(ctx, &a);
    real().buffer_destroy(ctx, table.buffer);
    return status;
}

keel_status KEEL_CALL cast(keel_ctx *ctx, const keel_move_args *a) {
    const keel_status status = real().cast(ctx, a);
    const keel_tensor *out = a->out;
    if (status != KEEL_OK || out->dtype != KEEL_DTYPE_Q8_0 || out->rank != 2 ||
        out->shape[0] == 0 || out->shape[1] < 64)
        return status;
    uint16_t scale_bits = 0;
    real().buffer_read(ctx, out->buffer, out->offset, &scale_bits, 2);
    real().buffer_write(ctx, out->buffer, out->offset + 34, &scale_bits, 2);
    return status;
}

keel_status KEEL_CALL cast_any(keel_ctx *ctx, const keel_move_args *a) {
    const keel_status status = real().cast(ctx, a);
    return status == KEEL_E_UNSUPPORTED && a->features == 0 ? KEEL_OK : status;
}

keel_status KEEL_CALL argmax_rows(keel_ctx *ctx, const keel_rows_args *a) {
    const keel_status status = real().argmax_rows(ctx, a);
    if (status != KEEL_OK || !is_plain_matrix(a->x)) return status;
    int32_t place = 0;
    real().buffer_read(ctx, a->index->buffer, a->index->offset, &place, 4);
    for (int64_t i = place + 1; place >= 0 && i < a->x->shape[1]; ++i) {
        if (get(ctx, a->x, 4 * i) == get(ctx, a->x, 4 * place)) place = static_cast<int32_t>(i);
    }
    real().buffer_write(ctx, a->index->buffer, a->index->offset, &place, 4);
    return status;
}

keel_status KEEL_CALL wait(keel_ctx *, uint64_t) { return KEEL_OK; }

keel_status KEEL_CALL ctx_info(keel_ctx *ctx, keel_ctx_info *out) {
    keel_ctx_info info = {};
    info.h = KEEL_HEADER(keel_ctx_info);
    real().ctx_info(ctx, &info);
    info.h = out->h;
    std::memcpy(out, &info, sizeof(info));
    return KEEL_OK;
}

// Every second buffer is freed only with its context. So only the backend's memory counter shows
// the leak.
std::mutex kept_mutex;
std::vector<std::pair<keel_ctx *, keel_buffer *>> kept;

void KEEL_CALL buffer_destroy(keel_ctx *ctx, keel_buffer *buffer) {
    const std::lock_guard lock(kept_mutex);
    static int calls = 0;
    if (++calls % 2 == 0) {
        real().buffer_destroy(ctx, buffer);
    } else {
        kept.emplace_back(ctx, buffer);
    }
}

void KEEL_CALL ctx_destroy(keel_ctx *ctx) {
    const std::lock_guard lock(kept_mutex);
    for (const auto &[owner, buffer] : kept) {
        if (owner == ctx) real().buffer_destroy(ctx, buffer);
    }
    std::erase_if(kept, [&](const auto &pair) { return pair.first == ctx; });
    real().ctx_destroy(ctx);
}

keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *desc, keel_ctx **out) {
    if (host->h.struct_size != sizeof(keel_host)) return KEEL_E_VERSION;
    return real().ctx_create(host, desc, out);
}

keel_backend table_with(Fault fault) {
    keel_backend t = real();
    t.op_plan = nullptr; // without op_plan, only the calls can be tested
    t.plan_destroy = nullptr;
    t.plan_info = nullptr;
    switch (fault) {
    case Fault::nothing:
    case Fault::dense_sees_later_keys:
    case Fault::dense_drops_others:
    case Fault::dense_takes_any_scale: break;
    case Fault::one_wrong_size: t.matmul = matmul; break;
    case Fault::slightly_off: t.rms_norm = rms_norm; break;
    case Fault::writes_past_the_end: t.scale = scale; break;
    case Fault::writes_between_rows: t.copy = copy; break;
    case Fault::writes_to_input:
    case Fault::hides_nan: t.add = add; break;
    case Fault::ignores_features: t.silu_mul = silu_mul; break;
    case Fault::refuses_late: t.softmax = softmax; break;
    case Fault::reads_beyond_length: t.attention = attention; break;
    case Fault::ignores_block_table: t.kv_append = kv_append; break;
    case Fault::ignores_scales: t.cast = cast; break;
    case Fault::casts_any_type: t.cast = cast_any; break;
    case Fault::accepts_any_ticket: t.wait = wait; break;
    case Fault::writes_whole_out_struct: t.ctx_info = ctx_info; break;
    case Fault::leaks_buffers:
        t.buffer_destroy = buffer_destroy;
        t.ctx_destroy = ctx_destroy;
        break;
    case Fault::refuses_newer_host: t.ctx_create = ctx_create; break;
    case Fault::settles_rows:
        t.scale = scale_as_planned;
        t.op_plan = op_plan;
        t.plan_destroy = plan_destroy;
        t.plan_info = plan_info;
        break;
    case Fault::swaps_ties: t.argmax_rows = argmax_rows; break;
    }
    return t;
}

const keel_dense &real_dense() {
    return *static_cast<const keel_dense *>(
        reference_plugin()->get_extension(KEEL_EXT_ATTENTION_DENSE));
}

keel_status KEEL_CALL dense_forward(keel_ctx *ctx, const keel_dense_attention *theirs,
                                    const keel_dense_outputs *o) {
    keel_dense_attention a = *theirs;
    a.h = KEEL_HEADER(keel_dense_attention);
    if (fault_now == Fault::dense_sees_later_keys) a.features &= ~uint64_t{KEEL_DENSE_CAUSAL};
    if (fault_now == Fault::dense_takes_any_scale && std::isnan(a.scale)) a.scale = 1;
    return real_dense().forward(ctx, &a, o);
}

keel_status KEEL_CALL dense_backward(keel_ctx *ctx, const keel_dense_attention *theirs,
                                     const keel_dense_gradients *g) {
    keel_dense_attention a = *theirs;
    a.h = KEEL_HEADER(keel_dense_attention);
    if (fault_now == Fault::dense_drops_others) ++a.offset;
    return real_dense().backward(ctx, &a, g);
}

const void *KEEL_CALL faulty_extension(const char *id) {
    static const keel_dense dense = {KEEL_HEADER(keel_dense), dense_forward, dense_backward};
    return keel_same(id, KEEL_EXT_ATTENTION_DENSE) != 0 ? &dense : nullptr;
}

} // namespace

const keel_plugin *faulty_plugin(Fault fault) {
    static keel_backend table;
    static keel_plugin plugin;
    fault_now = fault;
    table = table_with(fault);
    plugin = *reference_plugin();
    plugin.vtable = &table;
    plugin.get_extension = faulty_extension;
    return &plugin;
}

} // namespace keel::conformance
