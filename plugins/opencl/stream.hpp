// The context's in-order queue: launches kernels, and waits with a time limit. OpenCL has no such
// wait. So a callback of the event wakes the waiting thread, and that thread checks the time.
#pragma once

#include "opencl/context.hpp"

namespace keel_opencl {

// Waits for the event of a queued command, and reports its error. Gives KEEL_E_DEVICE_LOST if no
// work that was queued before it ends within wait_seconds. Then every later call is refused,
// although the device may still run.
void wait_for(keel_ctx &ctx, cl_event event, const char *what);

// Whether a queued command has ended or failed. A wait for it reports the failure.
bool has_ended(cl_event event);

// Refuses the call if a wait has ended without an answer.
void require_alive(const keel_ctx &ctx);

// Waits, within the time limit, until none of our work runs. False: the device did not answer, so
// no memory that it uses may be freed.
bool settle(keel_ctx &ctx) noexcept;

// Shared memory (HOST_VISIBLE, IMPORT) is mapped while the host may access it, and unmapped while
// kernels may run. Call give_to_device() before queuing work, and give_to_host() when all queued
// work is done.
void give_to_device(keel_ctx &ctx);
void give_to_host(keel_ctx &ctx);
// Makes a buffer's memory shared, and maps it. KEEL_E_UNSUPPORTED if the driver maps it at a
// different address each time.
void share(keel_ctx &ctx, keel_buffer &b);

// Whether the work queued up to a ticket is done. Reports its errors.
bool is_done(keel_ctx &ctx, uint64_t ticket);

// Waits for all queued work, and reports its errors. Afterwards the host may use shared memory.
void finish(keel_ctx &ctx);

// ---- launching ----

// The number of work-items that share a row; in the plain form, the number of rows in a group.
constexpr int lanes_local = 64;
constexpr size_t plain_rows = 4;
inline int lanes_of(Form form) { return form == Form::local ? lanes_local : 1; }

// The number of work-groups, and of work-items in each. The local size is always explicit, because
// drivers compile for it.
struct Grid {
    size_t groups[3];
    size_t local[3];
};

// Enough groups of `local` items for n items.
inline size_t groups_for(uint64_t n, size_t local) {
    return static_cast<size_t>((n + local - 1) / local);
}

// For kernels whose LANES work-items share a row.
inline Grid row_grid(Form form, uint64_t rows) {
    if (form == Form::local) return {{static_cast<size_t>(rows), 1, 1}, {lanes_local, 1, 1}};
    return {{groups_for(rows, plain_rows), 1, 1}, {plain_rows, 1, 1}};
}

// For kernels whose work-items handle `piece` elements of a row each. The row is their second
// index.
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

// Queues a kernel. Args are tensors (the kernel gets their buffer), cl_mem, or plain values as the
// kernel declares them.
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
