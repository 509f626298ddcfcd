// The machine's Vulkan devices, their properties, and the opened device.
#pragma once

#include "vulkan/instance.hpp"

namespace keel_vulkan {

// Returns the devices that have Vulkan 1.2 and a compute queue. Their order gives the device
// numbers that the core uses: discrete GPUs, integrated GPUs, other devices, processors. Devices
// without a required feature come last.
std::vector<VkPhysicalDevice> list_devices(const Instance &instance);

// Properties of a device that decide how the backend uses it.
struct DeviceFacts {
    VkPhysicalDeviceProperties properties;
    char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE];
    uint8_t pipeline_uuid[VK_UUID_SIZE];
    uint32_t queue_family = 0;
    uint32_t subgroup_size = 1;
    bool subgroup_sums = false; // true: compute shaders have add, max and min over a subgroup
    bool unified = false;       // true: host and device share one memory
    bool imports = false;       // true: has VK_EXT_external_memory_host
    uint64_t import_align = 0;
    uint64_t max_allocation = 0;
    uint64_t memory_bytes = 0; // size of the device's own memory
    bool memory_budget = false;
    // true: has VK_EXT_calibrated_timestamps, so the host can read the device's clock
    bool calibrated = false;
    uint32_t timestamp_bits = 0; // number of bits of the queue's clock; 0: the queue has no clock
};

DeviceFacts device_facts(VkPhysicalDevice device);
// Returns the first feature that the backend needs and the device does not have, or NULL.
const char *missing_feature(VkPhysicalDevice device);

// The opened device.
class Device {
  public:
    Device() = default;
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    // If `staged` is true, host and device memory count as separate, for tests. If `matrices` is
    // true, cooperative matrices are required, and a device without the right ones is refused.
    void open(const keel_host *host, const Instance &instance, VkPhysicalDevice physical,
              bool staged, bool matrices);
    VkDevice handle() const { return device_; }
    VkPhysicalDevice physical() const { return physical_; }
    VkQueue queue() const { return queue_; }
    const DeviceFacts &facts() const { return facts_; }
    bool has_matrices() const { return matrices_; }

    // Returns true if loops are limited. lavapipe silently ends all loops of a shader after an
    // invocation has run 65535 loop rounds in total. So on processors the work is divided so that
    // no invocation runs more than kMostLoops rounds.
    bool limits_loops() const { return is_processor(); }
    bool is_processor() const {
        return facts_.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    }
    static constexpr uint64_t kMostLoops = 60000;

    PFN_vkGetMemoryHostPointerPropertiesEXT host_pointer_properties = nullptr;
    // NULL if the device does not have this function
    PFN_vkGetCalibratedTimestampsEXT calibrated_timestamps = nullptr;

  private:
    VkPhysicalDevice physical_ = VK_NULL_HANDLE;
    VkDevice device_ = VK_NULL_HANDLE;
    VkQueue queue_ = VK_NULL_HANDLE;
    DeviceFacts facts_ = {};
    bool matrices_ = false;
};

} // namespace keel_vulkan
