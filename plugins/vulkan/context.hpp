// A context of the Vulkan backend: one device, one compute queue, memory, the stream of commands,
// kernels.
#pragma once

#include "gpu/report.hpp"
#include "vulkan/device.hpp"
#include "vulkan/ext/replay.hpp"
#include "vulkan/kernel_cache.hpp"
#include "vulkan/memory.hpp"
#include "vulkan/stream.hpp"

// Members are closed in reverse order: what uses the device goes before the device.
struct keel_ctx {
    const keel_host *host = nullptr; // the core's; handed back to its functions
    keel_vulkan::Messages messages;  // of the validation layers
    keel_vulkan::Instance instance;
    keel_vulkan::Device device;
    keel_vulkan::Memory memory;
    keel_vulkan::KernelCache kernels;
    keel_vulkan::Stream stream;

    keel_vulkan::Range scratch;                  // shared by all ops: they run one after the other
    std::vector<keel_vulkan::Range> old_scratch; // smaller ones, that recordings may name
    std::unique_ptr<keel_recording> recording;   // ops are recorded instead of queued; else NULL
    uint32_t recordings = 0;                     // made and not yet destroyed
    uint64_t buffer_bytes = 0, weight_bytes = 0, scratch_bytes = 0;
    bool subgroups = true;   // kernels add up over subgroups
    bool reads_later = true; // keel.read_later/1
};

// A block of memory that tensors lie in.
struct keel_buffer {
    keel_vulkan::Range range;               // a part of a larger allocation, or all of `imported`
    keel_vulkan::Block *imported = nullptr; // IMPORT: closed with the buffer
    uint8_t *host = nullptr;                // IMPORT: where the host sees it
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

// Device memory of at least `bytes` that all ops share, by its address; its contents are lost when
// it grows. Called by op_plan; an op calls it again (and finds it large enough, when it was
// planned).
VkDeviceAddress scratch(keel_ctx *ctx, uint64_t bytes);

// Memory of the device; waits for what was given back and is still in use before it says that there
// is none.
Range take_memory(keel_ctx &ctx, MemoryUse use, uint64_t bytes);

// Ends the use of the host's own memory, which is the host's again when this returns. Only a device
// that does not come back within limits may still touch it: then its block stays.
void close_import(keel_ctx &ctx, Block *block) noexcept;

// Once no recording is left that may name them.
void give_back_old_scratch(keel_ctx &ctx) noexcept;

// Refuses if the validation layers complained since the last look.
void check_messages(keel_ctx *ctx, const char *what);

} // namespace keel_vulkan
