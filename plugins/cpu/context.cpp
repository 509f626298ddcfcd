#include "cpu/context.hpp"

#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"

#include <initializer_list>
#include <new>
#include <stdarg.h>
#include <stdio.h>

namespace keel_cpu {

keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    host->set_error(host, status, text);
    return status;
}

void name_kernel(PlanChoice &choice, const char *format, ...) noexcept {
    va_list list;
    va_start(list, format);
    vsnprintf(choice.kernel, sizeof choice.kernel, format, list);
    va_end(list);
}

uint8_t *scratch(keel_ctx *ctx, uint64_t bytes) noexcept {
    if (bytes <= ctx->scratch.bytes && ctx->scratch.data != nullptr) return ctx->scratch.data;
    memory_free(ctx->host, ctx->scratch);
    ctx->scratch = memory_alloc(ctx->host, bytes);
    if (ctx->scratch.data == nullptr)
        fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "not enough memory for %llu bytes of scratch space",
             static_cast<unsigned long long>(bytes));
    return ctx->scratch.data;
}

namespace {

// Returns the parameter with this key. Returns NULL if the parameter is missing, because hosts in
// tests can pass fewer parameters.
const keel_param *param(const keel_ctx_desc *desc, const char *key) {
    for (uint32_t i = 0; i < desc->n_params; ++i)
        if (keel_same(desc->params[i]->key, key)) return desc->params[i];
    return nullptr;
}

// Returns the index of a parameter's value in `words`. A missing parameter counts as the first
// word. If the value is not in `words`, reports an error and returns -1.
int place_of(const keel_host *host, const keel_ctx_desc *desc, const char *key,
             std::initializer_list<const char *> words) {
    const keel_param *p = param(desc, key);
    if (p == nullptr) return 0;
    int place = 0;
    for (const char *word : words) {
        if (keel_same(p->s, word)) return place;
        ++place;
    }
    char there[64] = "";
    size_t at = 0;
    for (const char *word : words)
        if (at < sizeof there)
            at += static_cast<size_t>(
                snprintf(there + at, sizeof there - at, "%s%s", at == 0 ? "" : ", ", word));
    fail(host, KEEL_E_INVALID_ARG, "%s: unknown value '%s'; use one of %s", key, p->s, there);
    return -1;
}

keel_status choose_isa(const keel_host *host, const char *word, Isa &isa) {
    const CpuFeatures features = cpu_features();
    if (keel_same(word, "auto")) {
        isa = best_isa(features);
        return KEEL_OK;
    }
    char there[isa_list_bytes];
    available_isas(features, there);
    for (uint32_t i = 0; i < isa_count; ++i) {
        isa = static_cast<Isa>(i);
        if (!keel_same(word, isa_name(isa))) continue;
        if (isa_available(features, isa)) return KEEL_OK;
        return fail(host, KEEL_E_UNSUPPORTED,
                    "isa: %s is not available: this machine has %s; use one of these, or auto",
                    word, there);
    }
    return fail(host, KEEL_E_INVALID_ARG, "isa: unknown value '%s'; use auto or one of %s", word,
                there);
}

} // namespace

keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *theirs,
                                 keel_ctx **out) noexcept {
    *out = nullptr;
    // The core can be older than this plugin, so the size of its host table is checked before use.
    keel_host services;
    if (keel_adopt(&services, sizeof services, host, KEEL_PREFIX(keel_host, cancelled)) != KEEL_OK)
        return KEEL_E_VERSION;
    keel_ctx_desc mine;
    if (keel_adopt(&mine, sizeof mine, theirs, KEEL_PREFIX(keel_ctx_desc, device)) != KEEL_OK)
        return fail(
            host, KEEL_E_VERSION,
            "the context description has another ABI version; build the plugin for this Keel");
    const keel_ctx_desc *desc = &mine;
    if (desc->device != 0)
        return fail(host, KEEL_E_NOT_FOUND,
                    "device %u does not exist: the cpu backend has only device 0", desc->device);
    Isa isa = Isa::scalar;
    const keel_param *p = param(desc, "isa");
    const keel_status status = choose_isa(host, p != nullptr ? p->s : "auto", isa);
    if (status != KEEL_OK) return status;

    p = param(desc, "threads");
    int64_t threads = p != nullptr ? p->i : 0;
    if (threads < 0 || threads > 256)
        return fail(host, KEEL_E_INVALID_ARG, "threads: expected 0 to 256, found %lld",
                    (long long)threads);
    if (threads == 0) threads = host->worker_count(host);
    const int compute = place_of(host, desc, "compute", {"fast", "exact"}),
              ask = place_of(host, desc, "prefetch", {"auto", "on", "off"}),
              copy = place_of(host, desc, "copy", {"auto", "on", "off"});
    if (compute < 0 || ask < 0 || copy < 0) return KEEL_E_INVALID_ARG;
    const bool fast = compute == 0;
    // If several rows of x share rows of weights, the kernel runs more instructions per byte,
    // and the hardware prefetcher is too slow on every processor.
    const bool own_choice = ask == 0,
               prefetch = own_choice ? cpu_features().prefetch_gains : ask == 1;

    void *place = host->alloc(host, sizeof(keel_ctx), 64);
    if (place == nullptr)
        return fail(host, KEEL_E_OUT_OF_MEMORY, "not enough memory for a context");
    keel_ctx *ctx = new (place) keel_ctx;
    ctx->host = host;
    ctx->threads = static_cast<uint32_t>(threads < 256 ? threads : 256);
    ctx->isa = isa;
    ctx->fast = fast;
    ctx->prefetch = prefetch;
    ctx->prefetch_rows = prefetch || own_choice;
    ctx->copy = static_cast<Copy>(copy);
    ctx->matmul = matmul_kernels(isa);
    ctx->matmul_bf16 = bf16_matmul_kernels(isa);
    ctx->rows = row_kernels(isa);
    ctx->attention = attention_kernels(isa);
    ctx->attention_bf16 = fast ? bf16_attention_kernels(isa) : nullptr;
    *out = ctx;
    return KEEL_OK;
}

void KEEL_CALL ctx_destroy(keel_ctx *ctx) noexcept {
    if (ctx == nullptr) return;
    memory_free(ctx->host, ctx->scratch);
    ctx->host->free(ctx->host, ctx);
}

keel_status KEEL_CALL ctx_info(keel_ctx *ctx, keel_ctx_info *out) noexcept {
    keel_ctx_info info = make_out<keel_ctx_info>();
    snprintf(info.description, sizeof info.description, "%s, %u thread%s, compute %s, prefetch %s",
             ctx->matmul_bf16 != nullptr ? ctx->matmul_bf16->isa : ctx->matmul->isa, ctx->threads,
             ctx->threads == 1 ? "" : "s", ctx->fast ? "fast" : "exact",
             ctx->prefetch        ? "on"
             : ctx->prefetch_rows ? "of shared rows"
                                  : "off");
    info.activation_dtype = KEEL_DTYPE_F32;
    info.sync = KEEL_SYNC_LAZY;
    info.kv_block_slots = 64;
    info.prefill_chunk = 512;
    info.buffer_align = 64;
    info.weight_dtypes = 1u << KEEL_DTYPE_Q4_K | 1u << KEEL_DTYPE_Q5_K | 1u << KEEL_DTYPE_Q6_K;
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

keel_status KEEL_CALL mem_info(keel_ctx *ctx, keel_mem_info *out) noexcept {
    keel_mem_info info = make_out<keel_mem_info>();
    system_memory(info.total, info.free);
    info.ours = ctx->buffer_bytes + ctx->weight_bytes + ctx->scratch.bytes;
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

// All work is complete when the call that started it returns. So each ticket is complete at once.
keel_status KEEL_CALL flush(keel_ctx *ctx, uint64_t *ticket) noexcept {
    *ticket = ++ctx->ticket;
    return KEEL_OK;
}

keel_status KEEL_CALL wait(keel_ctx *ctx, uint64_t ticket) noexcept {
    if (ticket != 0 && ticket <= ctx->ticket) return KEEL_OK;
    return fail(ctx->host, KEEL_E_INVALID_ARG, "ticket %llu is unknown; the latest ticket is %llu",
                static_cast<unsigned long long>(ticket),
                static_cast<unsigned long long>(ctx->ticket));
}

keel_status KEEL_CALL poll(keel_ctx *ctx, uint64_t ticket) noexcept { return wait(ctx, ticket); }

} // namespace keel_cpu
