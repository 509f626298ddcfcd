// Weights. The codes and scales of q8_0 and q4_0 are stored separately. Other types are stored as
// rows. If the device can read the host's memory, kernels read the file's mapping itself.
#include "opencl/ops/ops.hpp"

#include "gpu/create.hpp"

#include <algorithm>
#include <stdio.h>
#include <vector>

namespace keel_opencl {
namespace {

constexpr uint64_t piece_bytes = 8 << 20; // bytes that are converted and written at a time

Memory make_memory(keel_ctx &ctx, uint64_t bytes, cl_mem_flags flags, void *host) {
    if (ctx.device.max_buffer != 0 && bytes > ctx.device.max_buffer)
        refuse(ctx.host, KEEL_E_OUT_OF_MEMORY,
               "a weight of %llu bytes is too large: device '%s' allows at most %llu bytes in one "
               "buffer",
               static_cast<unsigned long long>(bytes), ctx.device.name.c_str(),
               static_cast<unsigned long long>(ctx.device.max_buffer));
    cl_int code = CL_SUCCESS;
    Memory memory(
        clCreateBuffer(ctx.context.get(), flags, std::max<uint64_t>(bytes, 1), host, &code));
    check(ctx.host, code, "a weight's memory");
    return memory;
}

void write(keel_ctx &ctx, const Memory &to, uint64_t offset, const std::vector<uint8_t> &from,
           uint64_t n) {
    if (n == 0) return;
    check(ctx.host,
          clEnqueueWriteBuffer(ctx.queue.get(), to.get(), CL_TRUE, offset, n, from.data(), 0,
                               nullptr, nullptr),
          "writing a weight", true);
}

// Returns true if the weight has a single source that kernels can read directly in the mapping.
// Kernels address units, and load vectors of 16 floats from any unit.
bool fits_in_place(const keel_ctx &ctx, const keel_weight_desc &desc, const WeightShape &shape) {
    const keel_weight_source &s = *desc.sources[0];
    const auto at = reinterpret_cast<uintptr_t>(s.mapping) + s.offset;
    return ctx.unified && desc.n_sources == 1 && shape.bytes() != 0 &&
           at % unit_bytes(s.dtype) == 0;
}

// The mapping is read-only. This is safe, because the kernels' arguments are const, and nothing
// else writes.
void use_in_place(keel_ctx &ctx, const keel_weight_desc &desc, keel_weight &w) {
    const keel_weight_source &s = *desc.sources[0];
    const auto begin = reinterpret_cast<uintptr_t>(s.mapping), at = begin + s.offset;
    const uintptr_t down = at / ctx.device.alignment * ctx.device.alignment;
    const uintptr_t first = down >= begin ? down : at; // drivers prefer an aligned start
    w.offset = at - first;
    w.memory = make_memory(ctx, w.offset + w.shape.bytes(), CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR,
                           reinterpret_cast<void *>(first));
    w.in_place = true;
}

void take(keel_ctx &ctx, const keel_weight_desc &desc, keel_weight &w) {
    const WeightShape &shape = w.shape;
    w.bytes = w.split ? shape.split_bytes() : shape.bytes();
    w.memory = make_memory(ctx, w.bytes, CL_MEM_READ_ONLY, nullptr);
    const uint64_t row = shape.row_bytes();
    if (row == 0 || shape.rows == 0) return;
    const int64_t step = static_cast<int64_t>(std::max<uint64_t>(piece_bytes / row, 1));
    std::vector<uint8_t> codes, scales;
    for (int64_t first = 0; first < shape.rows; first += step) {
        need_not_cancelled(ctx.host);
        const int64_t n = std::min(step, shape.rows - first);
        const auto count = static_cast<uint64_t>(n), before = static_cast<uint64_t>(first);
        if (w.split) {
            codes.resize(count * shape.code_bytes());
            scales.resize(count * shape.blocks() * 2);
            split_rows(desc, shape, first, n, codes.data(), scales.data());
            write(ctx, w.memory, before * shape.code_bytes(), codes, codes.size());
            write(ctx, w.memory, shape.scales_offset() + before * shape.blocks() * 2, scales,
                  scales.size());
        } else {
            codes.resize(count * row);
            copy_rows(desc, shape, first, n, codes.data());
            write(ctx, w.memory, before * row, codes, codes.size());
        }
    }
}

} // namespace

keel_status KEEL_CALL weight_prepare(keel_ctx *ctx, const keel_weight_desc *theirs,
                                     keel_weight **out) noexcept {
    return create_weight(ctx, theirs, out, [&](const keel_weight_desc &desc) {
        auto w = std::make_unique<keel_weight>();
        w->shape = check_weight(ctx->host, desc);
        // If only the op embed reads a weight, its codes and scales are not stored separately,
        // because embed reads single rows fast in any layout.
        w->split = is_block(w->shape.type) && (desc.use & KEEL_USE_MATMUL) != 0;
        if (!w->split && fits_in_place(*ctx, desc, w->shape))
            use_in_place(*ctx, desc, *w);
        else
            take(*ctx, desc, *w);
        ctx->weight_bytes += w->bytes;
        return w.release();
    });
}

void KEEL_CALL weight_destroy(keel_ctx *ctx, keel_weight *w) noexcept {
    if (w == nullptr) return;
    // After this function returns, the host may unmap the file from which the device reads an
    // in-place weight. So this function waits for the device. If the device does not answer, it can
    // still be using the weight. Then this function frees nothing.
    if (w->in_place && !settle(*ctx)) return;
    ctx->weight_bytes -= w->bytes;
    delete w;
}

keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *w,
                                  keel_weight_info *out) noexcept {
    keel_weight_info info = make_out<keel_weight_info>();
    info.rows = w->shape.rows;
    info.cols = w->shape.cols;
    info.dtype = dtype_of(w->shape.type);
    info.bytes = w->split ? w->shape.split_bytes() : w->shape.bytes();
    info.source_needed = w->in_place ? 1 : 0;
    snprintf(info.layout, sizeof info.layout, "%s, %s", type_name(w->shape.type),
             w->split      ? "codes and scales apart"
             : w->in_place ? "in place"
                           : "rows");
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_opencl
