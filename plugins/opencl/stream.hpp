// Waits that end. OpenCL has none with a limit of its own: a callback of the event wakes who waits, and who waits looks at the time.
#pragma once

#include "opencl/cl.hpp"

namespace keel_opencl {

// Waits for the event of a queued command; surfaces what went wrong with it. KEEL_E_DEVICE_LOST when no work that was queued before it
// ends for wait_seconds: then every later call is refused, and the device may still run.
void wait_for(keel_ctx &ctx, cl_event event, const char *what);

// Whether a queued command has ended, or failed, which a wait for it says.
bool has_ended(cl_event event);

// Refuses when a wait has ended without an answer.
void require_alive(const keel_ctx &ctx);

// Waits, within limits, until nothing of ours runs. False: the device did not come back, and nothing that it was given may be taken from it.
bool settle(keel_ctx &ctx) noexcept;

// Shared memory (HOST_VISIBLE, IMPORT) is mapped while the host has it and unmapped while kernels may run. Before something is queued,
// and when all that was queued is done.
void give_to_device(keel_ctx &ctx);
void give_to_host(keel_ctx &ctx);
// Makes a buffer's memory shared, and maps it. KEEL_E_UNSUPPORTED where a driver maps it at another address each time.
void share(keel_ctx &ctx, keel_buffer &b);

} // namespace keel_opencl
