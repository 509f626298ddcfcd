// keel.replay/1: a recorded step is a secondary command buffer. It contains its barriers. Its large
// parameters have their own memory.
#pragma once

#include "vulkan/memory.hpp"

#include <vector>

struct keel_recording {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::vector<keel_vulkan::Range> params;
    uint64_t params_used = 0; // bytes used in the last range
    VkPipeline bound = VK_NULL_HANDLE;
    uint32_t dispatches = 0;
    bool after_barrier = true; // true at the start, because a barrier precedes the whole step
};
