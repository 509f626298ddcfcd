// The context's in-order queue: launches kernels, and waits with a time limit. OpenCL has no wait
// with a time limit. So a callback of the event wakes the waiting thread, which checks the time
// itself.
#pragma once

#include "opencl/context.hpp"

namespace keel_opencl {

// Waits for the event of a queued command and reports the command's error. Throws Refusal with
// KEEL_E_DEVICE_LOST if no earlier work ends within wait_seconds. After that, every call fails,
// although the device can still be running.
void wait_for(keel_ctx &ctx, cl_event event, const char *what);

// Returns true if a queued command has ended or failed. A wait for the command reports the failure.
bool has_ended(cl_event event);

// Throws Refusal if the device did not answer in an earlier wait.
void require_alive(const keel_ctx &ctx);

// Waits, within the time limit, until no work of this context runs. Returns false if the device did
// not answer. Then memory that the device uses must not be freed.
bool settle(keel_ctx &ctx) noexcept;

// Shared memory (HOST_VISIBLE and IMPORT buffers) is mapped while the host may access it. It is
// unmapped while kernels may run. Call give_to_device() before work is queued, and give_to_host()
// after all queued work is done.
void give_to_device(keel_ctx &ctx);
void give_to_host(keel_ctx &ctx);
// Makes the memory of a buffer shared, and maps it. Throws Refusal with KEEL_E_UNSUPPORTED if the
// driver does not map it at the same address each time.
void share(keel_ctx &ctx, keel_buffer &b);

// Returns true if the work up to a ticket is done. Reports errors of this work.
bool is_done(keel_ctx &ctx, uint64_t ticket);

// Waits for all queued work and reports its errors. After this call the host may access shared
// memory.
void finish(keel_ctx &ctx);

// ---- launching ----

// In the local form, the number of work-items that share a row. In the plain form, the number of
// rows in a group.
constexpr int lanes_local = 64;
constexpr size_t plain_rows = 4;
inline int lanes_of(Form form) { return form == Form::local ? lanes_local : 1; }

// The number of work-groups, and of work-items in each group, in three dimensions. The size of a
// group is always explicit, because drivers compile kernels for it.
struct Grid {
    size_t groups[3];
    size_t local[3];
};

// Returns the smallest number of groups of `local` work-items that covers n items.
inline size_t groups_for(uint64_t n, size_t local) {
    return static_cast<size_t>((n + local - 1) / local);
}

// Returns the grid for a kernel whose LANES work-items share a row.
inline Grid row_grid(Form form, uint64_t rows) {
    if (form == Form::local) return {{static_cast<size_t>(rows), 1, 1}, {lanes_local, 1, 1}};
    return {{groups_for(rows, plain_rows), 1, 1}, {plain_rows, 1, 1}};
}

// Returns the grid for a kernel whose work-items each handle `piece` elements of a row. The second
// index of a work-item is the row.
inline Grid piece_grid(Form form, uint64_t elements, uint64_t piece, uint64_t rows) {
    const size_t local = form == Form::local ? 128 : 32;
    return {{groups_for((elements + piece - 1) / piece, local), static_cast<size_t>(rows), 1},
            {local, 1, 1}};
}

void set_arg(keel_ctx &ctx, cl_kernel kernel, cl_uint index, const void *value, size_t size);
void enqueue(keel_ctx &ctx, cl_kernel kernel, const Grid &grid);

inline cl_mem memory_of(keel_ctx &ctx, const keel_tensor *t) {
    return t != nullptr && t->buffer != nullptr ? t->buffer->memory.get() : ctx.nothing.get();
}

inline void set_arg(keel_ctx &ctx, cl_kernel kernel, cl_uint index, const cl_mem &memory) {
    if (ctx.recording != nullptr) record_use(ctx, memory);
    set_arg(ctx, kernel, index, &memory, sizeof memory);
}
inline void set_arg(keel_ctx &ctx, cl_kernel kernel, cl_uint index, const keel_tensor *t) {
    set_arg(ctx, kernel, index, memory_of(ctx, t));
}
template <class T> void set_arg(keel_ctx &ctx, cl_kernel kernel, cl_uint index, const T &value) {
    set_arg(ctx, kernel, index, &value, sizeof value);
}

// Queues a kernel. Each arg is a tensor (the kernel gets its buffer), a cl_mem, or a plain value of
// the type that the kernel declares.
template <class... Args>
void launch(keel_ctx &ctx, cl_kernel kernel, const Grid &grid, const Args &...args) {
    for (const size_t groups : grid.groups)
        if (groups == 0) return;
    if (ctx.recording != nullptr) kernel = record_kernel(ctx, kernel);
    cl_uint index = 0;
    (set_arg(ctx, kernel, index++, args), ...);
    enqueue(ctx, kernel, grid);
}

} // namespace keel_opencl
