// The machine's Vulkan devices, what each can do, and the one that was opened.
#pragma once

#include "vulkan/instance.hpp"

namespace keel_vulkan {

// Devices with Vulkan 1.2 and a compute queue, in the order in which the core counts them: discrete
// GPUs, integrated ones, others, processors. Devices that lack a feature come last.
std::vector<VkPhysicalDevice> list_devices(const Instance &instance);

// Facts of a device on which choices depend.
struct DeviceFacts {
    VkPhysicalDeviceProperties properties;
    char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE];
    uint8_t pipeline_uuid[VK_UUID_SIZE];
    uint32_t queue_family = 0;
    uint32_t subgroup_size = 1;
    bool subgroup_sums = false; // add, max, min over a subgroup of a compute shader
    bool unified = false;       // one memory for host and device
    bool imports = false;       // VK_EXT_external_memory_host
    uint64_t import_align = 0;
    uint64_t max_allocation = 0;
    uint64_t memory_bytes = 0; // of the device's own heaps
    bool memory_budget = false;
    bool calibrated = false;     // VK_EXT_calibrated_timestamps: its clock can be read
    uint32_t timestamp_bits = 0; // of the queue's clock; 0: it has none
};

DeviceFacts device_facts(VkPhysicalDevice device);
// The first feature that the backend needs and the device lacks; NULL: it has all.
const char *missing_feature(VkPhysicalDevice device);

// The opened device.
class Device {
  public:
    Device() = default;
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    // staged: memory counts as not unified, whatever the device is (for tests). matrices:
    // cooperative matrices are wanted, and the device is refused if it has none that fit.
    void open(const keel_host *host, const Instance &instance, VkPhysicalDevice physical,
              bool staged, bool matrices);
    VkDevice handle() const { return device_; }
    VkPhysicalDevice physical() const { return physical_; }
    VkQueue queue() const { return queue_; }
    const DeviceFacts &facts() const { return facts_; }
    bool has_matrices() const { return matrices_; }

    // lavapipe silently ends all loops of a shader when an invocation has done 65535 rounds in
    // total. So on processors work is divided so that no invocation does more than kMostLoops.
    bool limits_loops() const {
        return facts_.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    }
    static constexpr uint64_t kMostLoops = 60000;

    PFN_vkGetMemoryHostPointerPropertiesEXT host_pointer_properties = nullptr;
    PFN_vkGetCalibratedTimestampsEXT calibrated_timestamps = nullptr; // NULL: the device has none

  private:
    VkPhysicalDevice physical_ = VK_NULL_HANDLE;
    VkDevice device_ = VK_NULL_HANDLE;
    VkQueue queue_ = VK_NULL_HANDLE;
    DeviceFacts facts_ = {};
    bool matrices_ = false;
};

} // namespace keel_vulkan
