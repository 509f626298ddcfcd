// keel.replay/1: recorded steps. A step is a secondary command buffer, which contains its barriers.
// Parameters that are too large for push constants have their own memory.
#pragma once

#include "vulkan/memory.hpp"

#include <vector>

struct keel_recording {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::vector<keel_vulkan::Range> params;
    uint64_t params_used = 0; // used bytes of the last range
    VkPipeline bound = VK_NULL_HANDLE;
    uint32_t dispatches = 0;
    bool after_barrier = true; // true at the start, because a barrier precedes the whole step
};
