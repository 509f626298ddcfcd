// PoCL with a layer that makes it fail on demand (fault_layer.cpp).
#pragma once

#include "support/driver_fault_runs.hpp"
#include "support/gpu_rig.hpp"

namespace keel::test {

inline const FailingDriver driver = {"opencl",
                                     {"OPENCL_LAYERS=" KEEL_FAULT_LAYER,
                                      "POCL_CACHE_DIR=" KEEL_BINARY_DIR "/pocl-cache",
                                      "XDG_CACHE_HOME=" KEEL_BINARY_DIR "/cache"},
                                     "clFlush",
                                     -2, // CL_DEVICE_NOT_AVAILABLE
                                     -4, // CL_MEM_OBJECT_ALLOCATION_FAILURE
                                     "clCreateBuffer",
                                     "clGetDeviceIDs",
                                     "clBuildProgram",
                                     -11}; // CL_BUILD_PROGRAM_FAILURE
inline const Environment environment(driver.environment);

inline const conformance::Library &library() {
    static const conformance::Library plugin(KEEL_OPENCL_PLUGIN);
    return plugin;
}

} // namespace keel::test
