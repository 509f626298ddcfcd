#include "opencl/ext/extensions.hpp"

#include <string>

namespace keel_opencl {

cl_kernel record_kernel(keel_ctx &ctx, cl_kernel kernel) {
    cl_program program = nullptr;
    size_t length = 0;
    check(ctx.host, clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, nullptr),
          "clGetKernelInfo");
    check(ctx.host, clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, nullptr, &length), "clGetKernelInfo");
    std::string name(length, '\0');
    check(ctx.host, clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, length, name.data(), nullptr),
          "clGetKernelInfo");
    cl_int code = CL_SUCCESS;
    Kernel own(clCreateKernel(program, name.c_str(), &code));
    check(ctx.host, code, name.c_str());
    ctx.recording->launches.push_back({std::move(own), {}, {}});
    return ctx.recording->launches.back().kernel.get();
}

void record_use(keel_ctx &ctx, cl_mem memory) {
    check(ctx.host, clRetainMemObject(memory), "clRetainMemObject");
    ctx.recording->uses.emplace_back(memory);
}

namespace {

keel_status KEEL_CALL replay_begin(keel_ctx *ctx) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "another recording");
        if (ctx->timing.is_on())
            refuse(ctx->host, KEEL_E_UNSUPPORTED, "no step is recorded while ops are timed");
        ctx->recording = std::make_unique<keel_recording>();
    });
}

keel_status KEEL_CALL replay_end(keel_ctx *ctx, keel_recording **out) noexcept {
    if (out != nullptr) *out = nullptr;
    return guarded(ctx->host, [&] {
        if (ctx->recording == nullptr) refuse(ctx->host, KEEL_E_INVALID_ARG, "no step is being recorded");
        auto done = std::exchange(ctx->recording, nullptr);
        if (out != nullptr) *out = done.release();
    });
}

keel_status KEEL_CALL replay_submit(keel_ctx *ctx, keel_recording *recording) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "submitting a recording");
        require_alive(*ctx);
        give_to_device(*ctx);
        ctx->queued = true;
        for (const keel_recording::Launch &launch : recording->launches)
            check(ctx->host,
                  clEnqueueNDRangeKernel(ctx->queue.get(), launch.kernel.get(), 3, nullptr, launch.global,
                                         launch.local, 0, nullptr, nullptr),
                  "clEnqueueNDRangeKernel");
    });
}

void KEEL_CALL replay_destroy(keel_ctx *, keel_recording *recording) noexcept {
    delete recording; // queued kernels keep what they use
}

} // namespace

const keel_replay replay = {
    KEEL_HEADER(keel_replay),          replay_begin, replay_end, replay_submit, replay_destroy,
    "kernels with their arguments set"};

} // namespace keel_opencl
