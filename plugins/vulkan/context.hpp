// A context of the Vulkan backend: one device with one compute queue, its memory, its command
// stream and its kernels.
#pragma once

#include "gpu/report.hpp"
#include "vulkan/device.hpp"
#include "vulkan/ext/replay.hpp"
#include "vulkan/kernel_cache.hpp"
#include "vulkan/memory.hpp"
#include "vulkan/stream.hpp"

// Members are destroyed in reverse order: the users of the device first, then the device.
struct keel_ctx {
    // the core's host table; it is also an argument of its functions
    const keel_host *host = nullptr;
    keel_vulkan::Messages messages; // messages of the validation layers
    keel_vulkan::Instance instance;
    keel_vulkan::Device device;
    keel_vulkan::Memory memory;
    keel_vulkan::KernelCache kernels;
    keel_vulkan::Stream stream;

    // All ops share this memory, because the stream runs one op at a time.
    keel_vulkan::Range scratch;
    // Earlier scratch memory, which was smaller. Recordings can still use it.
    std::vector<keel_vulkan::Range> old_scratch;
    std::unique_ptr<keel_recording> recording; // if not NULL, ops are recorded and not queued
    uint32_t recordings = 0;                   // number of recordings that exist
    uint64_t buffer_bytes = 0, weight_bytes = 0, scratch_bytes = 0;
    bool subgroups = true;   // true: kernels use sums over subgroups
    bool reads_later = true; // true: the extension keel.read_later/1 is available
};

// A block of memory that holds tensors.
struct keel_buffer {
    keel_vulkan::Range range; // a part of a larger allocation, or the whole of `imported`
    keel_vulkan::Block *imported = nullptr; // only for IMPORT: destroyed with the buffer
    uint8_t *host = nullptr;                // only for IMPORT: address on the host
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

// Returns the address of scratch memory of at least `bytes` bytes, which all ops share. If the
// memory must grow, its contents are lost. op_plan calls this function first; when the planned op
// calls it again, the memory is large enough.
VkDeviceAddress scratch(keel_ctx *ctx, uint64_t bytes);

// Allocates device memory. If there is none, first waits until no command uses the memory that was
// given back.
Range take_memory(keel_ctx &ctx, MemoryUse use, uint64_t bytes);

// Ends the device's use of the host's own memory. When this function returns, the host may reuse
// the memory. If the device does not answer within the time limit, it can still be accessing the
// memory. Then the block is not destroyed.
void close_import(keel_ctx &ctx, Block *block) noexcept;

// Must be called only when no recording exists that can use the old scratch memory.
void give_back_old_scratch(keel_ctx &ctx) noexcept;

// Throws Refusal if the validation layers reported an error since the last call.
void check_messages(keel_ctx *ctx, const char *what);

} // namespace keel_vulkan
