#include "opencl/context.hpp"

#include "gpu/create.hpp"
#include "opencl/ops/ops.hpp"

#include <stdio.h>

namespace keel_opencl {
namespace {

void open_device(keel_ctx &ctx, const keel_ctx_desc &desc) {
    const std::vector<DeviceFacts> devices = list_devices();
    if (desc.device >= devices.size())
        refuse(ctx.host, KEEL_E_NOT_FOUND,
               "device %u does not exist: OpenCL finds %zu device(s) on this machine", desc.device,
               devices.size());
    ctx.device = devices[desc.device];
    ctx.unified = ctx.device.unified && !keel_same(word(desc, "memory", "auto"), "staged");
    const cl_context_properties properties[] = {
        CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(ctx.device.platform), 0};
    cl_int code = CL_SUCCESS;
    ctx.context.reset(clCreateContext(properties, 1, &ctx.device.device, nullptr, nullptr, &code));
    check(ctx.host, code, ctx.device.name.c_str());
    ctx.queue.reset(clCreateCommandQueue(ctx.context.get(), ctx.device.device, 0, &code));
    check(ctx.host, code, "clCreateCommandQueue");
    ctx.nothing.reset(clCreateBuffer(ctx.context.get(), CL_MEM_READ_WRITE, 64, nullptr, &code));
    check(ctx.host, code, "clCreateBuffer");
    const char *cache = word(desc, "cache", "auto");
    keel_gpu::warn_of_unused_folder(ctx.host, cache);
    ctx.kernels = std::make_unique<KernelCache>(ctx.host, ctx.context.get(), ctx.device,
                                                keel_gpu::DiskCache::folder_of(cache, "opencl"));
    ctx.staging = std::make_unique<Staging>(ctx, ctx.host, ctx.context.get(), ctx.queue.get());
    ctx.wait_seconds = static_cast<uint32_t>(number(desc, "wait_seconds", ctx.wait_seconds));
}

// With `auto`, processors get the form `plain`. All other devices get the form `local` if they can
// run it.
void choose_form(keel_ctx &ctx, const keel_ctx_desc &desc) {
    const char *kernels = word(desc, "kernels", "auto");
    // In the local form, the 256 work-items of a group share tiles of 20 KiB in local memory.
    const bool possible = ctx.device.local_memory >= (32 << 10) && ctx.device.max_group >= 256;
    const bool wanted = keel_same(kernels, "local");
    if (wanted && !possible)
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "kernels: local needs 32 KiB of local memory and groups of 256; '%s' has %llu bytes "
               "and "
               "groups of %llu; "
               "use plain or auto",
               ctx.device.name.c_str(), static_cast<unsigned long long>(ctx.device.local_memory),
               static_cast<unsigned long long>(ctx.device.max_group));
    const bool suits = keel_same(kernels, "auto") && possible && !ctx.device.is_cpu();
    ctx.form = wanted || suits ? Form::local : Form::plain;
}

void need_ticket(keel_ctx &ctx, uint64_t ticket) {
    if (ticket == 0 || ticket > ctx.ticket)
        refuse(ctx.host, KEEL_E_INVALID_ARG, "ticket %llu is unknown; the latest ticket is %llu",
               static_cast<unsigned long long>(ticket),
               static_cast<unsigned long long>(ctx.ticket));
}

} // namespace

cl_mem scratch(keel_ctx &ctx, uint64_t bytes) {
    if (bytes <= ctx.scratch_bytes) return ctx.scratch.get();
    cl_int code = CL_SUCCESS;
    Memory memory(clCreateBuffer(ctx.context.get(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
    check(ctx.host, code, "scratch memory");
    ctx.scratch = std::move(memory); // work in the queue keeps the old memory alive
    ctx.scratch_bytes = bytes;
    return ctx.scratch.get();
}

keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *desc,
                                 keel_ctx **out) noexcept {
    return keel_gpu::create_context(host, desc, out,
                                    [](keel_ctx &ctx, const keel_ctx_desc &wanted) {
                                        open_device(ctx, wanted);
                                        choose_form(ctx, wanted);
                                    });
}

void KEEL_CALL ctx_destroy(keel_ctx *ctx) noexcept {
    if (ctx == nullptr) return;
    // If the device can still be running, its memory is not freed. This leaks memory, but cannot
    // crash.
    if (!settle(*ctx)) return;
    clFinish(ctx->queue.get());
    delete ctx;
}

keel_status KEEL_CALL ctx_info(keel_ctx *ctx, keel_ctx_info *out) noexcept {
    keel_ctx_info info = make_out<keel_ctx_info>();
    snprintf(info.description, sizeof info.description, "%s, %s memory, kernels %s, compute exact",
             ctx->device.name.c_str(), ctx->unified ? "unified" : "staged", form_name(ctx->form));
    info.activation_dtype = KEEL_DTYPE_F32;
    info.sync = KEEL_SYNC_LAZY;
    info.kv_block_slots = 64;
    info.prefill_chunk = 512;
    info.buffer_align = ctx->device.alignment;
    info.max_buffer_bytes = ctx->device.max_buffer;
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

keel_status KEEL_CALL mem_info(keel_ctx *ctx, keel_mem_info *out) noexcept {
    keel_mem_info info = make_out<keel_mem_info>();
    info.total = ctx->device.memory; // OpenCL does not report how much memory is free
    info.ours = ctx->buffer_bytes + ctx->weight_bytes + ctx->scratch_bytes + ctx->staging->bytes();
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

keel_status KEEL_CALL flush(keel_ctx *ctx, uint64_t *ticket) noexcept {
    *ticket = 0;
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "flush");
        require_alive(*ctx);
        is_done(*ctx, ctx->ticket);
        cl_event event = nullptr;
        check(ctx->host, clEnqueueMarkerWithWaitList(ctx->queue.get(), 0, nullptr, &event),
              "clEnqueueMarkerWithWaitList");
        Event marker(event);
        check(ctx->host, clFlush(ctx->queue.get()), "clFlush");
        ctx->marks.push_back({ctx->ticket + 1, std::move(marker)});
        ctx->queued = false;
        *ticket = ++ctx->ticket;
    });
}

keel_status KEEL_CALL wait(keel_ctx *ctx, uint64_t ticket) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "wait");
        need_ticket(*ctx, ticket);
        require_alive(*ctx);
        if (!is_done(*ctx, ticket)) {
            for (const keel_ctx::Mark &mark : ctx->marks) {
                if (mark.ticket != ticket) continue;
                wait_for(*ctx, mark.event.get(), "clWaitForEvents");
                ctx->kernels->slow_start().work_ended();
                break;
            }
            is_done(*ctx, ticket);
        }
        if (!ctx->host_has) finish(*ctx); // after this wait the host may access the shared buffers
    });
}

keel_status KEEL_CALL poll(keel_ctx *ctx, uint64_t ticket) noexcept {
    bool done = false;
    const keel_status status = guarded(ctx->host, [&] {
        need_ticket(*ctx, ticket);
        require_alive(*ctx);
        done = is_done(*ctx, ticket);
        if (done && !ctx->host_has) finish(*ctx);
    });
    return status == KEEL_OK && !done ? KEEL_E_NOT_READY : status;
}

} // namespace keel_opencl
