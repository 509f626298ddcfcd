// The machine's OpenCL devices, in the order of the core's device numbers.
#pragma once

#include "opencl/cl.hpp"

#include <vector>

namespace keel_opencl {

// Facts of a device, which the backend queries once.
struct DeviceFacts {
    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    cl_device_type type = 0;
    std::string name, vendor, driver; // driver: versions of the platform and the driver
    bool unified = false;             // host and device share one memory
    bool exact_division = false;      // supports -cl-fp32-correctly-rounded-divide-sqrt
    uint64_t memory = 0, max_buffer = 0, local_memory = 0, max_group = 0;
    uint32_t alignment = 64; // alignment of buffers in bytes
    uint32_t vector = 4;     // preferred vector width in floats, as the driver reports it
    uint32_t units = 1;      // number of compute units: cores or multiprocessors

    bool is_cpu() const { return (type & CL_DEVICE_TYPE_CPU) != 0; }
};

// GPUs with their own memory come first, then GPUs that share the host's memory, then accelerators,
// then processors. So a processor is device 0 only if there is no other device. Empty if there is
// no platform or driver.
std::vector<DeviceFacts> list_devices();

} // namespace keel_opencl
