// Which devices there are. Each call looks anew: a plugin keeps no state between calls.
#include "vulkan/ops/ops.hpp"

#include <stdio.h>

namespace keel_vulkan {
namespace {

const char *vendor_name(uint32_t id) {
    switch (id) {
    case 0x1002:
        return "AMD";
    case 0x10DE:
        return "NVIDIA";
    case 0x8086:
        return "Intel";
    case 0x13B5:
        return "Arm";
    case 0x5143:
        return "Qualcomm";
    case VK_VENDOR_ID_MESA:
        return "Mesa";
    default:
        return "";
    }
}

keel_device_type type_of(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return KEEL_DEVICE_CPU;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return KEEL_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: // a card, or a part of one, as clouds lend them
        return KEEL_DEVICE_DISCRETE;
    default:
        return KEEL_DEVICE_OTHER;
    }
}

} // namespace

// No driver is no error: there are 0 devices then.
keel_status KEEL_CALL device_count(const keel_host *host, uint32_t *n) noexcept {
    *n = 0;
    const keel_status status = guarded(host, [&] {
        Instance instance;
        instance.open(host, false, nullptr);
        *n = static_cast<uint32_t>(instance.devices().size());
    });
    return status == KEEL_E_NOT_FOUND ? KEEL_OK : status;
}

keel_status KEEL_CALL device_info(const keel_host *host, uint32_t index, keel_device_info *out) noexcept {
    return guarded(host, [&] {
        Instance instance;
        instance.open(host, false, nullptr);
        const std::vector<VkPhysicalDevice> devices = instance.devices();
        if (index >= devices.size())
            refuse(host, KEEL_E_NOT_FOUND, "device %u: Vulkan has %zu device(s) here", index, devices.size());
        const DeviceFacts facts = device_facts(devices[index]);
        keel_device_info info = make_out<keel_device_info>();
        snprintf(info.name, sizeof info.name, "%.127s", facts.properties.deviceName);
        snprintf(info.vendor, sizeof info.vendor, "%s", vendor_name(facts.properties.vendorID));
        snprintf(info.driver, sizeof info.driver, "%.127s", facts.driver);
        info.type = keel_vulkan::type_of(facts.properties.deviceType);
        info.flags =
            (facts.unified ? KEEL_DEVICE_UNIFIED : 0) | (facts.imports ? KEEL_DEVICE_IMPORTS_HOST : 0);
        info.total_bytes = facts.memory_bytes;
        keel_emit(out, &info, sizeof info);
    });
}

} // namespace keel_vulkan
