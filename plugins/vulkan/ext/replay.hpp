// keel.replay/1: a recorded step is a secondary command buffer, with its barriers and with its
// large parameters in memory of its own.
#pragma once

#include "vulkan/memory.hpp"

#include <vector>

struct keel_recording {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::vector<keel_vulkan::Range> params;
    uint64_t params_used = 0; // bytes of the last range
    VkPipeline bound = VK_NULL_HANDLE;
    uint32_t dispatches = 0;
    bool after_barrier = true; // the one that stands before the whole
};
