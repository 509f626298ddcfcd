// keel.replay/1: a recorded step is a list of kernel objects of its own, whose arguments stay set:
// submitting it is enqueueing them. cl_khr_command_buffer is not used: it is provisional, and where
// we could measure it (PoCL 3.1) it took the host a third longer.
#pragma once

#include "opencl/cl.hpp"

#include <vector>

struct keel_recording {
    struct Launch {
        keel_opencl::Kernel kernel;
        size_t global[3], local[3];
    };
    std::vector<Launch> launches;
    std::vector<keel_opencl::Memory> uses; // an argument alone does not keep its memory
};

namespace keel_opencl {

// A kernel object like `kernel`, for the launch that is recorded next.
cl_kernel record_kernel(keel_ctx &ctx, cl_kernel kernel);
void record_use(keel_ctx &ctx, cl_mem memory);

} // namespace keel_opencl
