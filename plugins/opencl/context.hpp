// A context of the OpenCL backend: device, queue, settings, kernels, staging and scratch memory.
// The stream is an in-order queue.
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

// Kernels come in two forms. plain: a work-item does a row or a tile alone, in vectors; for
// processors. local: the work-items of a group share a row or tile through local memory; for GPUs.
enum class Form { plain, local };
inline const char *form_name(Form form) { return form == Form::local ? "local" : "plain"; }

} // namespace keel_opencl

struct keel_ctx {
    const keel_host *host = nullptr; // the core's; handed back to its functions
    keel_opencl::DeviceFacts device;
    bool unified = false; // what the device says, unless the config wants everything staged
    keel_opencl::Context context;
    keel_opencl::Queue queue;
    std::unique_ptr<keel_opencl::KernelCache> kernels;
    std::unique_ptr<keel_opencl::Staging> staging;
    keel_opencl::Timing timing;
    std::unique_ptr<keel_recording> recording; // ops are recorded instead of queued; else NULL

    keel_opencl::Form form = keel_opencl::Form::plain;

    keel_opencl::Memory nothing; // stands for tensors that are absent
    keel_opencl::Memory scratch; // shared by all ops: they run one after the other
    uint64_t scratch_bytes = 0, buffer_bytes = 0, weight_bytes = 0;

    uint32_t wait_seconds = 300;       // of silence, after which the device counts as lost
    bool timed_out = false;            // it does: no call is taken any more
    bool gone = false;                 // and did not come back when it was waited for again
    std::vector<keel_buffer *> shared; // HOST_VISIBLE and IMPORT buffers,
    bool host_has = true;              // which are mapped

    bool queued = false; // something, since the last flush
    uint64_t ticket = 0; // the last one given
    struct Mark {
        uint64_t ticket;
        keel_opencl::Event event;
    };
    std::deque<Mark> marks; // given and not yet known to be done, rising

    keel_opencl::LaterReads later;
    uint64_t own_submits = 0, own_waits = 0; // that nobody asked for
};

// A block of memory that tensors lie in.
struct keel_buffer {
    keel_opencl::Memory memory;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    // HOST_VISIBLE, IMPORT: the host's address, the same each time that it is mapped
    void *mapped = nullptr;
};

struct keel_plan {
    keel_op op;
    uint64_t scratch_bytes;
    char kernel[64];
};

// A weight taken over by the backend (weights.cpp).
struct keel_weight {
    keel_gpu::WeightShape shape;
    keel_opencl::Memory memory;
    uint64_t offset = 0;   // bytes, of row 0
    bool split = false;    // codes and scales apart; else rows as in the file
    bool in_place = false; // memory is the source's own
    uint64_t bytes = 0;    // held
};

namespace keel_opencl {

// Makes the scratch at least `bytes` large; its contents are lost when it grows.
cl_mem scratch(keel_ctx &ctx, uint64_t bytes);

// The size of a kernel's own memory for a head of n elements: few sizes, because each is compiled
// for.
inline int dim_class(uint32_t n) { return n <= 128 ? 128 : n <= 256 ? 256 : 1024; }

} // namespace keel_opencl
