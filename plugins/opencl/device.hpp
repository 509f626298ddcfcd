// The machine's OpenCL devices, in the order in which the core counts them.
#pragma once

#include "opencl/cl.hpp"

#include <vector>

namespace keel_opencl {

// What the backend asks a device once.
struct DeviceFacts {
    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    cl_device_type type = 0;
    std::string name, vendor, driver; // driver: platform's and driver's version
    bool unified = false;             // the host's memory and the device's are one
    bool exact_division = false;      // takes -cl-fp32-correctly-rounded-divide-sqrt
    uint64_t memory = 0, max_buffer = 0, local_memory = 0, max_group = 0;
    uint32_t alignment = 64; // of buffers, bytes
    uint32_t vector = 4;     // floats in a register, as the driver sees it
    uint32_t units = 1;      // compute units: cores, multiprocessors

    bool is_cpu() const { return (type & CL_DEVICE_TYPE_CPU) != 0; }
};

// GPUs with memory of their own, then GPUs that share the host's, then accelerators, then
// processors: so a processor is device 0 only where it is alone. Empty when there is no platform or
// driver.
std::vector<DeviceFacts> list_devices();

} // namespace keel_opencl
