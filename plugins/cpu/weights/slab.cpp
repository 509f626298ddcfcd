#include "cpu/weights/slab.hpp"

#include "cpu/context.hpp"

#include <new>

namespace keel_cpu {
namespace {

// The size of the address space of a slab. Only the used part of a slab takes memory.
constexpr uint64_t slab_bytes = uint64_t{256} << 20;
constexpr uint64_t least = 64 << 10, most = slab_bytes / 4;

WeightSlab *make_slab(keel_ctx *ctx) noexcept {
    void *place = ctx->host->alloc(ctx->host, sizeof(WeightSlab), alignof(WeightSlab));
    if (place == nullptr) return nullptr;
    WeightSlab *slab = new (place) WeightSlab{};
    slab->memory = memory_alloc(ctx->host, slab_bytes);
    if (slab->memory.data != nullptr) return slab;
    ctx->host->free(ctx->host, slab);
    return nullptr;
}

} // namespace

Memory weight_alloc(keel_ctx *ctx, uint64_t bytes, WeightSlab *&slab) noexcept {
    slab = nullptr;
    if (bytes < least || bytes > most) return memory_alloc(ctx->host, bytes);
    if (ctx->slab == nullptr || bytes > slab_bytes - ctx->slab->used) {
        WeightSlab *fresh = make_slab(ctx);
        // If there is no memory for a new slab, there can still be enough for this smaller block.
        if (fresh == nullptr) return memory_alloc(ctx->host, bytes);
        ctx->slab = fresh;
    }
    slab = ctx->slab;
    Memory m;
    m.data = slab->memory.data + slab->used;
    m.bytes = bytes;
    // slab_bytes is a multiple of 64, so `used` does not exceed it.
    slab->used += (bytes + 63) / 64 * 64;
    ++slab->weights;
    return m;
}

void weight_free(keel_ctx *ctx, Memory &memory, WeightSlab *&slab) noexcept {
    if (slab == nullptr) return memory_free(ctx->host, memory);
    if (--slab->weights == 0) {
        if (ctx->slab == slab) ctx->slab = nullptr;
        memory_free(ctx->host, slab->memory);
        ctx->host->free(ctx->host, slab);
    } else {
        // Other weights stay in the slab. The pages that only this weight uses are released now.
        const uint64_t page = page_bytes(), at = reinterpret_cast<uintptr_t>(memory.data);
        const uint64_t begin = (at + page - 1) / page * page,
                       end = (at + memory.bytes) / page * page;
        if (begin < end) memory_release(memory.data + (begin - at), end - begin);
    }
    memory = {};
    slab = nullptr;
}

} // namespace keel_cpu
