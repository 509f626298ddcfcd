#include "opencl/ops/ops.hpp"

#include <string>

namespace keel_opencl {

cl_kernel record_kernel(keel_ctx &ctx, cl_kernel kernel) {
    cl_program program = nullptr;
    size_t length = 0;
    check(ctx.host, clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, nullptr),
          "clGetKernelInfo");
    check(ctx.host, clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, nullptr, &length),
          "clGetKernelInfo");
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

const char *const recording_kind = "kernels with their arguments set";

std::unique_ptr<keel_recording> start_recording(keel_ctx &) {
    return std::make_unique<keel_recording>();
}

void end_recording(keel_ctx &, std::unique_ptr<keel_recording> &, bool) {}

void submit_recording(keel_ctx &ctx, keel_recording &recording) {
    require_alive(ctx);
    give_to_device(ctx);
    ctx.queued = true;
    for (const keel_recording::Launch &launch : recording.launches)
        check(ctx.host,
              clEnqueueNDRangeKernel(ctx.queue.get(), launch.kernel.get(), 3, nullptr,
                                     launch.global, launch.local, 0, nullptr, nullptr),
              "clEnqueueNDRangeKernel");
}

void destroy_recording(keel_ctx &, keel_recording *recording) noexcept {
    delete recording; // queued kernels keep the objects that they use
}

} // namespace keel_opencl
