// A context of the Vulkan backend: one device with one compute queue, its memory, its command
// stream and its kernels.
#pragma once

#include "gpu/report.hpp"
#include "vulkan/device.hpp"
#include "vulkan/ext/replay.hpp"
#include "vulkan/kernel_cache.hpp"
#include "vulkan/memory.hpp"
#include "vulkan/stream.hpp"

// Members are destroyed in reverse order: users of the device before the device.
struct keel_ctx {
    const keel_host *host = nullptr; // the core's host table, passed back to its functions
    keel_vulkan::Messages messages;  // messages of the validation layers
    keel_vulkan::Instance instance;
    keel_vulkan::Device device;
    keel_vulkan::Memory memory;
    keel_vulkan::KernelCache kernels;
    keel_vulkan::Stream stream;

    // shared by all ops, because ops run one after the other
    keel_vulkan::Range scratch;
    // earlier, smaller scratch memory that recordings may refer to
    std::vector<keel_vulkan::Range> old_scratch;
    std::unique_ptr<keel_recording> recording; // if not NULL, ops are recorded instead of queued
    uint32_t recordings = 0;                   // number of recordings that exist
    uint64_t buffer_bytes = 0, weight_bytes = 0, scratch_bytes = 0;
    bool subgroups = true;   // whether kernels use subgroup sums
    bool reads_later = true; // whether keel.read_later/1 is served
};

// A block of memory that holds tensors.
struct keel_buffer {
    keel_vulkan::Range range;               // a part of a larger allocation, or all of `imported`
    keel_vulkan::Block *imported = nullptr; // IMPORT: destroyed with the buffer
    uint8_t *host = nullptr;                // IMPORT: its host address
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
};

struct keel_plan {
    keel_op op;
    uint64_t scratch_bytes;
    char kernel[64];
    keel_vulkan::KeptPipelines pipelines;
};

namespace keel_vulkan {

using keel_gpu::fail;
using keel_gpu::guarded;
using keel_gpu::make_out;
using keel_gpu::need_no_recording;
using keel_gpu::PlanChoice;

// Returns the address of scratch memory of at least `bytes`, which all ops share. Its contents are
// lost when it grows. op_plan calls this; a planned op calls it again and finds it large enough.
VkDeviceAddress scratch(keel_ctx *ctx, uint64_t bytes);

// Allocates device memory. If there is none, first waits for memory that was given back but is
// still in use.
Range take_memory(keel_ctx &ctx, MemoryUse use, uint64_t bytes);

// Ends the device's use of the host's own memory. When this returns, the host may reuse the memory.
// If the device does not answer within the time limit, it may still access the memory. Then the
// block is kept.
void close_import(keel_ctx &ctx, Block *block) noexcept;

// Call this when no recording is left that may refer to the old scratch memory.
void give_back_old_scratch(keel_ctx &ctx) noexcept;

// Refuses if the validation layers reported an error since the last call.
void check_messages(keel_ctx *ctx, const char *what);

} // namespace keel_vulkan
