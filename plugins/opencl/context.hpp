// A context of the OpenCL backend: device, queue, settings, kernels, staging memory and scratch
// memory. The stream is an in-order queue.
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

// Kernels have two forms. plain, for processors: each work-item handles a row or a tile, with
// vectors. local, for GPUs: the work-items of a group share a row or a tile through local memory.
enum class Form { plain, local };
inline const char *form_name(Form form) { return form == Form::local ? "local" : "plain"; }

} // namespace keel_opencl

struct keel_ctx {
    const keel_host *host = nullptr; // the core's host table, passed back to its functions
    keel_opencl::DeviceFacts device;
    bool unified = false; // as the device reports, or false if the config wants all copies staged
    keel_opencl::Context context;
    keel_opencl::Queue queue;
    std::unique_ptr<keel_opencl::KernelCache> kernels;
    std::unique_ptr<keel_opencl::Staging> staging;
    keel_opencl::Timing timing;
    std::unique_ptr<keel_recording> recording; // if not NULL, ops are recorded instead of queued

    keel_opencl::Form form = keel_opencl::Form::plain;

    keel_opencl::Memory nothing; // passed to kernels in place of absent tensors
    keel_opencl::Memory scratch; // shared by all ops, because ops run one after the other
    uint64_t scratch_bytes = 0, buffer_bytes = 0, weight_bytes = 0;

    // after this time without progress, the device counts as lost
    uint32_t wait_seconds = 300;
    // the device did not answer in time; all further calls are refused
    bool timed_out = false;
    bool gone = false;                 // the device did not answer in settle() either
    std::vector<keel_buffer *> shared; // HOST_VISIBLE and IMPORT buffers
    bool host_has = true;              // whether the shared buffers are mapped for the host

    bool queued = false; // whether something was queued since the last flush
    uint64_t ticket = 0; // number of the last ticket
    struct Mark {
        uint64_t ticket;
        keel_opencl::Event event;
    };
    std::deque<Mark> marks; // tickets not yet known to be done, in rising order

    keel_opencl::LaterReads later;
    uint64_t own_submits = 0, own_waits = 0; // submissions and waits that no caller requested
};

// A block of memory that holds tensors.
struct keel_buffer {
    keel_opencl::Memory memory;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    // HOST_VISIBLE, IMPORT: the host's address. It is the same for every mapping.
    void *mapped = nullptr;
};

struct keel_plan {
    keel_op op;
    uint64_t scratch_bytes;
    char kernel[64];
};

// A weight prepared by the backend (weights.cpp).
struct keel_weight {
    keel_gpu::WeightShape shape;
    keel_opencl::Memory memory;
    uint64_t offset = 0; // byte offset of row 0
    // codes and scales are stored separately; otherwise rows are as in the file
    bool split = false;
    bool in_place = false; // `memory` is the source's own memory
    uint64_t bytes = 0;    // bytes held
};

namespace keel_opencl {

// Makes the scratch memory at least `bytes` large. Its contents are lost when it grows.
cl_mem scratch(keel_ctx &ctx, uint64_t bytes);

// Size of a kernel's private arrays for a head of n elements. There are few sizes, because each
// needs its own compiled kernel.
inline int dim_class(uint32_t n) { return n <= 128 ? 128 : n <= 256 ? 256 : 1024; }

} // namespace keel_opencl
