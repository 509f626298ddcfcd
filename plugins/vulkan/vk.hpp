// The Vulkan API, the translation of its statuses for the core, and lists of extensions.
#pragma once

#include "gpu/report.hpp"

#include <vector>
#include <vulkan/vulkan.h>

namespace keel_vulkan {

using keel_gpu::refuse;

// The status that a Vulkan error means; VK_SUCCESS is KEEL_OK.
keel_status status_of(VkResult result);
// If the result is an error, refuses with the matching status and names the failed call.
void check(const keel_host *host, VkResult result, const char *what);

using Extensions = std::vector<VkExtensionProperties>;
bool has_extension(const Extensions &list, const char *name);

} // namespace keel_vulkan
