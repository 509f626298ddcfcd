// A context of the OpenCL backend: device, queue, settings, kernels, staging memory and scratch
// memory. The queue executes commands in order.
#pragma once

#include "gpu/checks.hpp"
#include "opencl/device.hpp"
#include "opencl/ext/read_later.hpp"
#include "opencl/ext/replay.hpp"
#include "opencl/ext/timing.hpp"
#include "opencl/kernel_cache.hpp"
#include "opencl/staging.hpp"

#include <deque>
#include <memory>

namespace keel_opencl {

using keel_gpu::guarded;
using keel_gpu::make_out;
using keel_gpu::name_kernel;
using keel_gpu::need_no_recording;
using keel_gpu::PlanChoice;
using keel_gpu::Type;
using keel_gpu::View;

// Kernels have two forms. The form `plain` is for processors: each work-item handles a whole row or
// tile, with vectors. The form `local` is for GPUs: the work-items of a group share a row or a tile
// through local memory.
enum class Form { plain, local };
inline const char *form_name(Form form) { return form == Form::local ? "local" : "plain"; }

} // namespace keel_opencl

struct keel_ctx {
    // the core's host table; it is also an argument of its functions
    const keel_host *host = nullptr;
    keel_opencl::DeviceFacts device;
    // true: host and device share memory, as the device reports; false also if the config requires
    // copies
    bool unified = false;
    keel_opencl::Context context;
    keel_opencl::Queue queue;
    std::unique_ptr<keel_opencl::KernelCache> kernels;
    std::unique_ptr<keel_opencl::Staging> staging;
    keel_opencl::Timing timing;
    std::unique_ptr<keel_recording> recording; // if not NULL, ops are recorded and not queued

    keel_opencl::Form form = keel_opencl::Form::plain;

    keel_opencl::Memory nothing; // a small buffer that kernels get in place of absent tensors
    // all ops share this memory, because the queue runs one op at a time
    keel_opencl::Memory scratch;
    uint64_t scratch_bytes = 0, buffer_bytes = 0, weight_bytes = 0;

    // If the device makes no progress for this number of seconds, it counts as lost.
    uint32_t wait_seconds = 300;
    // True: the device did not answer in time. All further calls fail.
    bool timed_out = false;
    bool gone = false;                 // true: the device did not answer in settle() either
    std::vector<keel_buffer *> shared; // HOST_VISIBLE and IMPORT buffers
    bool host_has = true;              // true: the shared buffers are mapped for the host

    bool queued = false; // true: commands were queued since the last flush
    uint64_t ticket = 0; // number of the newest ticket
    struct Mark {
        uint64_t ticket;
        keel_opencl::Event event;
    };
    std::deque<Mark> marks; // tickets whose work is not known to be done, in rising order

    keel_opencl::LaterReads later;
    uint64_t own_submits = 0, own_waits = 0; // submissions and waits that the core did not request
};

// A block of memory that holds tensors.
struct keel_buffer {
    keel_opencl::Memory memory;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    // Only for HOST_VISIBLE and IMPORT: the address of the buffer on the host. Every mapping has
    // the same address.
    void *mapped = nullptr;
};

struct keel_plan {
    keel_op op;
    uint64_t scratch_bytes;
    char kernel[64];
};

// A weight that the backend has prepared (weights.cpp).
struct keel_weight {
    keel_gpu::WeightShape shape;
    keel_opencl::Memory memory;
    uint64_t offset = 0; // byte offset of row 0
    // True: codes and scales are stored separately. False: rows are stored as in the file.
    bool split = false;
    bool in_place = false; // true: `memory` is the memory of the weight's source
    uint64_t bytes = 0;    // bytes of memory that the weight takes
};

namespace keel_opencl {

// Returns scratch memory of at least `bytes` bytes. If the memory must grow, its contents are lost.
cl_mem scratch(keel_ctx &ctx, uint64_t bytes);

// Returns the size of a kernel's private arrays for a head of n elements. There are only three
// sizes, because each size needs its own compiled kernel.
inline int dim_class(uint32_t n) { return n <= 128 ? 128 : n <= 256 ? 256 : 1024; }

} // namespace keel_opencl
