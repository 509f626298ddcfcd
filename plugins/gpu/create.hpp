// Code that both GPU backends use to create a context, a buffer or a weight. The backend's context
// header must be included first: it defines keel_ctx, keel_buffer and keel_weight.
#pragma once

#include "gpu/report.hpp"

#include <memory>

namespace keel_gpu {

// Does the work of ctx_create. open(ctx, desc) must open the context, whose member `host` is
// already set.
template <class Open>
keel_status create_context(const keel_host *host, const keel_ctx_desc *theirs, keel_ctx **out,
                           const Open &open) noexcept {
    *out = nullptr;
    // The core can be older than this plugin. Its host table must have all members that the
    // backends use.
    keel_host services;
    if (keel_adopt(&services, sizeof services, host, KEEL_PREFIX(keel_host, cancelled)) != KEEL_OK)
        return KEEL_E_VERSION;
    return guarded(host, [&] {
        keel_ctx_desc desc;
        if (keel_adopt(&desc, sizeof desc, theirs, KEEL_PREFIX(keel_ctx_desc, device)) != KEEL_OK)
            refuse(
                host, KEEL_E_VERSION,
                "the context description has another ABI version; build the plugin for this Keel");
        auto ctx = std::make_unique<keel_ctx>();
        ctx->host = host;
        open(*ctx, desc);
        *out = ctx.release();
    });
}

// Does the work of buffer_create. make(desc) must return the buffer.
template <class Make>
keel_status create_buffer(keel_ctx *ctx, const keel_buffer_desc *theirs, keel_buffer **out,
                          const Make &make) noexcept {
    *out = nullptr;
    return guarded(ctx->host, [&] {
        keel_buffer_desc desc;
        if (keel_adopt(&desc, sizeof desc, theirs, KEEL_PREFIX(keel_buffer_desc, kind)) != KEEL_OK)
            refuse(
                ctx->host, KEEL_E_INVALID_ARG,
                "the buffer description has another ABI version; build the plugin for this Keel");
        if (desc.size == 0)
            refuse(ctx->host, KEEL_E_INVALID_ARG,
                   "expected a buffer of 1 byte or more, found 0 bytes");
        *out = make(desc);
    });
}

// Does the work of weight_prepare. make(desc) must return the weight.
template <class Make>
keel_status create_weight(keel_ctx *ctx, const keel_weight_desc *theirs, keel_weight **out,
                          const Make &make) noexcept {
    *out = nullptr;
    return guarded(ctx->host, [&] {
        keel_weight_desc desc;
        if (keel_adopt(&desc, sizeof desc, theirs, KEEL_PREFIX(keel_weight_desc, use)) != KEEL_OK)
            refuse(
                ctx->host, KEEL_E_INVALID_ARG,
                "the weight description has another ABI version; build the plugin for this Keel");
        *out = make(desc);
    });
}

} // namespace keel_gpu
