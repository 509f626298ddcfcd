// The Vulkan API, what its statuses mean to the core, and lists of extensions.
#pragma once

#include "gpu/report.hpp"

#include <vector>
#include <vulkan/vulkan.h>

namespace keel_vulkan {

using keel_gpu::refuse;

// The status that a Vulkan error means; VK_SUCCESS is KEEL_OK.
keel_status status_of(VkResult result);
// Refuses with that status, naming what was tried, if the result is an error.
void check(const keel_host *host, VkResult result, const char *what);

using Extensions = std::vector<VkExtensionProperties>;
bool has_extension(const Extensions &list, const char *name);

} // namespace keel_vulkan
