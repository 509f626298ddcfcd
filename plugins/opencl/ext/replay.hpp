// keel.replay/1: recorded steps. A step is a list of its own kernel objects, whose arguments are
// already set. Submitting the step enqueues these kernels. The extension cl_khr_command_buffer is
// not used: it is provisional, and with PoCL 3.1 it took a third more host time.
#pragma once

#include "opencl/cl.hpp"

#include <vector>

struct keel_recording {
    struct Launch {
        keel_opencl::Kernel kernel;
        size_t global[3], local[3];
    };
    std::vector<Launch> launches;
    // memory that the kernels use; a kernel argument alone does not keep it alive
    std::vector<keel_opencl::Memory> uses;
};

namespace keel_opencl {

// Returns a new kernel object of the same function as `kernel`. The next recorded launch uses it.
cl_kernel record_kernel(keel_ctx &ctx, cl_kernel kernel);
void record_use(keel_ctx &ctx, cl_mem memory);

} // namespace keel_opencl
