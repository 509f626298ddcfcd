// The machine's OpenCL devices. Their order gives the device numbers that the core uses.
#pragma once

#include "opencl/cl.hpp"

#include <vector>

namespace keel_opencl {

// Properties of a device. The backend queries them once.
struct DeviceFacts {
    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    cl_device_type type = 0;
    std::string name, vendor, driver; // driver: versions of the platform and the driver
    bool unified = false;             // true: host and device share one memory
    bool exact_division = false;      // true: supports -cl-fp32-correctly-rounded-divide-sqrt
    uint64_t memory = 0, max_buffer = 0, local_memory = 0, max_group = 0;
    uint32_t alignment = 64; // required alignment of buffers in bytes
    uint32_t vector = 4;     // preferred vector width in floats, as the driver reports it
    uint32_t units = 1;      // number of compute units: cores or multiprocessors

    bool is_cpu() const { return (type & CL_DEVICE_TYPE_CPU) != 0; }
};

// Returns the devices in this order: GPUs with their own memory, GPUs that share the host's memory,
// accelerators, processors. So a processor is device 0 only if there is no other device. The list
// is empty if there is no platform or driver.
std::vector<DeviceFacts> list_devices();

} // namespace keel_opencl
