// Lavapipe with a layer that makes it fail on demand (fault_layer.cpp).
#pragma once

#include "support/driver_fault_runs.hpp"
#include "support/gpu_rig.hpp"

namespace keel::test {

inline const FailingDriver driver = {
    "vulkan",
    {"VK_LAYER_PATH=" KEEL_FAULT_LAYERS, "VK_INSTANCE_LAYERS=VK_LAYER_KEEL_fault",
     "NODEVICE_SELECT=1", // Mesa's own layer fails if a driver has no devices
     "XDG_CACHE_HOME=" KEEL_BINARY_DIR "/cache"},
    "vkQueueSubmit",
    -4, // VK_ERROR_DEVICE_LOST
    -2, // VK_ERROR_OUT_OF_DEVICE_MEMORY
    "vkAllocateMemory",
    "vkEnumeratePhysicalDevices",
    "vkCreateComputePipelines",
    -13}; // VK_ERROR_UNKNOWN
inline const Environment environment(driver.environment);

inline const conformance::Library &library() {
    static const conformance::Library plugin(KEEL_VULKAN_PLUGIN);
    return plugin;
}

} // namespace keel::test
