#include "vulkan/vk.hpp"

#include <algorithm>
#include <cstring>

namespace keel_vulkan {

keel_status status_of(VkResult result) {
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS: return KEEL_E_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST: return KEEL_E_DEVICE_LOST;
    default: return result < 0 ? KEEL_E_INTERNAL : KEEL_OK;
    }
}

void check(const keel_host *host, VkResult result, const char *what) {
    if (result >= 0) return;
    const char *why = "an error of the driver";
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY) why = "no host memory";
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY) why = "no device memory";
    if (result == VK_ERROR_TOO_MANY_OBJECTS)
        why = "the driver cannot create more objects of this kind";
    if (result == VK_ERROR_DEVICE_LOST) why = "the device was lost";
    refuse(host, status_of(result), "%s: %s (VkResult %d)", what, why, static_cast<int>(result));
}

bool has_extension(const Extensions &list, const char *name) {
    return std::any_of(list.begin(), list.end(), [&](const VkExtensionProperties &e) {
        return std::strcmp(e.extensionName, name) == 0;
    });
}

} // namespace keel_vulkan
