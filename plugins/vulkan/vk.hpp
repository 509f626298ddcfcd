// The Vulkan API, the translation of its status codes for the core, and lists of extensions.
#pragma once

#include "gpu/report.hpp"

#include <vector>
#include <vulkan/vulkan.h>

namespace keel_vulkan {

using keel_gpu::refuse;

// Returns the status for the core that a Vulkan result corresponds to. VK_SUCCESS becomes KEEL_OK.
keel_status status_of(VkResult result);
// If the result is an error, throws Refusal with status_of(result). The message names the failed
// call.
void check(const keel_host *host, VkResult result, const char *what);

using Extensions = std::vector<VkExtensionProperties>;
bool has_extension(const Extensions &list, const char *name);

} // namespace keel_vulkan
