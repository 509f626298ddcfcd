#include "vulkan/context.hpp"

#include "gpu/create.hpp"
#include "vulkan/ops/ops.hpp"

#include <memory>
#include <stdio.h>

namespace keel_vulkan {
namespace {

void open(keel_ctx &ctx, const keel_ctx_desc &desc) {
    ctx.messages.host = ctx.host;
    ctx.instance.open(ctx.host, number(desc, "validation", 0) != 0, &ctx.messages);
    const std::vector<VkPhysicalDevice> devices = list_devices(ctx.instance);
    if (desc.device >= devices.size())
        refuse(ctx.host, KEEL_E_NOT_FOUND,
               "device %u does not exist: Vulkan finds %zu device(s) on this machine", desc.device,
               devices.size());
    ctx.device.open(ctx.host, ctx.instance, devices[desc.device],
                    keel_same(word(desc, "memory", "auto"), "staged"),
                    keel_same(word(desc, "compute", "exact"), "fast"));
    ctx.memory.open(ctx.host, &ctx.device);
    const char *reduce = word(desc, "reduce", "auto");
    if (keel_same(reduce, "subgroup") && !ctx.device.facts().subgroup_sums)
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "reduce: device '%s' does not support sums over subgroups; use shared or auto",
               ctx.device.facts().properties.deviceName);
    ctx.subgroups = ctx.device.facts().subgroup_sums && !keel_same(reduce, "shared");
    const char *later = word(desc, "read_later", "auto");
    ctx.reads_later = keel_same(later, "on") ||
                      (keel_same(later, "auto") &&
                       ctx.device.facts().properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU);
    const char *cache = word(desc, "cache", "auto");
    keel_gpu::warn_of_unused_folder(ctx.host, cache);
    ctx.kernels.open(ctx.host, &ctx.device, ctx.subgroups,
                     keel_gpu::DiskCache::folder_of(cache, "vulkan"));
    ctx.stream.open(ctx.host, &ctx.device, &ctx.memory, ctx.kernels,
                    static_cast<uint32_t>(number(desc, "wait_seconds", 300)));
    check_messages(&ctx, "ctx_create");
}

} // namespace

VkDeviceAddress scratch(keel_ctx *ctx, uint64_t bytes) {
    if (bytes > ctx->scratch_bytes) {
        const Range larger = take_memory(*ctx, MemoryUse::device, bytes);
        if (ctx->recordings != 0 || ctx->recording != nullptr) {
            ctx->old_scratch.push_back(ctx->scratch);
        } else {
            ctx->stream.give_back_later(ctx->scratch);
        }
        ctx->scratch = larger;
        ctx->scratch_bytes = bytes;
    }
    return ctx->scratch.block == nullptr ? 0 : ctx->scratch.address();
}

Range take_memory(keel_ctx &ctx, MemoryUse use, uint64_t bytes) {
    try {
        return ctx.memory.take(use, bytes);
    } catch (const keel_gpu::Refusal &refusal) {
        if (refusal.status != KEEL_E_OUT_OF_MEMORY || !ctx.stream.has_garbage()) throw;
    }
    ctx.stream.finish();
    return ctx.memory.take(use, bytes);
}

void close_import(keel_ctx &ctx, Block *block) noexcept {
    guarded(ctx.host, [&] {
        if (!ctx.stream.lost()) ctx.stream.finish();
    });
    if (ctx.stream.settle()) ctx.memory.close(block);
}

void give_back_old_scratch(keel_ctx &ctx) noexcept {
    for (const Range &range : ctx.old_scratch) ctx.stream.give_back_later(range);
    ctx.old_scratch.clear();
}

void check_messages(keel_ctx *ctx, const char *what) {
    if (!ctx->instance.validating()) return;
    std::string text;
    if (ctx->messages.take(text))
        refuse(ctx->host, KEEL_E_INTERNAL, "%s: the Vulkan validation layers say: %.1500s", what,
               text.c_str());
}

keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *desc,
                                 keel_ctx **out) noexcept {
    return keel_gpu::create_context(host, desc, out, open);
}

void KEEL_CALL ctx_destroy(keel_ctx *ctx) noexcept {
    if (ctx == nullptr) return;
    if (ctx->recording != nullptr) ctx->stream.drop(*ctx->recording);
    give_back_old_scratch(*ctx);
    // If the device can still be running, its memory is not freed. This leaks memory, but cannot
    // crash.
    if (!ctx->stream.settle()) {
        ctx->messages.close();
        return;
    }
    ctx->stream.close();
    ctx->memory.give_back(ctx->scratch);
    delete ctx;
}

keel_status KEEL_CALL ctx_info(keel_ctx *ctx, keel_ctx_info *out) noexcept {
    const DeviceFacts &facts = ctx->device.facts();
    keel_ctx_info info = make_out<keel_ctx_info>();
    snprintf(info.description, sizeof info.description, "%.127s, %s, subgroups of %u%s, compute %s",
             facts.properties.deviceName, facts.unified ? "unified memory" : "staged memory",
             facts.subgroup_size, ctx->subgroups ? "" : " (not used)",
             ctx->device.has_matrices() ? "fast" : "exact");
    info.activation_dtype = KEEL_DTYPE_F32;
    info.sync = KEEL_SYNC_LAZY;
    info.kv_block_slots = 64;
    // lavapipe limits the number of loop rounds, and attention scores need a loop over all queries
    // of a chunk. So chunks are smaller on this device.
    info.prefill_chunk = ctx->device.limits_loops() ? 256 : 512;
    info.buffer_align = static_cast<uint32_t>(
        facts.imports && facts.import_align > Memory::kAlign ? facts.import_align : Memory::kAlign);
    info.max_buffer_bytes = facts.max_allocation;
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

keel_status KEEL_CALL mem_info(keel_ctx *ctx, keel_mem_info *out) noexcept {
    keel_mem_info info = make_out<keel_mem_info>();
    info.total = ctx->device.facts().memory_bytes;
    info.free = ctx->memory.free_bytes();
    info.ours = ctx->buffer_bytes + ctx->weight_bytes + ctx->scratch_bytes;
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

keel_status KEEL_CALL flush(keel_ctx *ctx, uint64_t *ticket) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "flush");
        *ticket = ctx->stream.flush();
        check_messages(ctx, "flush");
    });
}

keel_status KEEL_CALL wait(keel_ctx *ctx, uint64_t ticket) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "wait");
        ctx->stream.wait(ticket);
        check_messages(ctx, "wait");
    });
}

keel_status KEEL_CALL poll(keel_ctx *ctx, uint64_t ticket) noexcept {
    bool done = false;
    const keel_status status = guarded(ctx->host, [&] { done = ctx->stream.poll(ticket); });
    return status == KEEL_OK && !done ? KEEL_E_NOT_READY : status;
}

} // namespace keel_vulkan
