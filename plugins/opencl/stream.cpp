#include "opencl/stream.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace keel_opencl {

bool has_ended(cl_event event) {
    cl_int state = CL_QUEUED;
    return clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                          nullptr) == CL_SUCCESS &&
           state <= CL_COMPLETE;
}

namespace {

// Limits of the wait in settle(). After a wait that timed out, settle() waits at least this many
// seconds. If the queue accepts no new commands, settle() waits at most this many seconds.
constexpr uint32_t last_seconds = 60;

// The waiting thread and the driver's callback thread share this object. The callback can come long
// after the waiting thread stopped waiting.
struct Signal {
    std::mutex mutex;
    std::condition_variable came;
    bool done = false;
};

void CL_CALLBACK on_done(cl_event, cl_int, void *user) {
    const std::unique_ptr<std::shared_ptr<Signal>> signal(
        static_cast<std::shared_ptr<Signal> *>(user));
    const std::lock_guard lock((*signal)->mutex);
    (*signal)->done = true;
    (*signal)->came.notify_all();
}

// Returns the number of tickets in ctx.marks whose work has ended.
size_t ended_marks(const keel_ctx &ctx) {
    return static_cast<size_t>(
        std::count_if(ctx.marks.begin(), ctx.marks.end(),
                      [](const keel_ctx::Mark &m) { return has_ended(m.event.get()); }));
}

// Returns the time until the next look at an event, an eighth of the time that was waited so far.
// NVIDIA's driver calls callbacks up to 20 ms after the event, so a wait that relies on the
// callback takes at least as long. With these looks a wait takes at most an eighth longer than the
// work.
std::chrono::microseconds next_look(std::chrono::steady_clock::duration waited) {
    using std::chrono::microseconds;
    return std::clamp(std::chrono::duration_cast<microseconds>(waited / 8), microseconds(10),
                      microseconds(1000000));
}

// Waits for the event. Returns false if for `seconds` seconds neither the event nor the work of a
// ticket ended.
bool await(const keel_ctx &ctx, cl_event event, uint32_t seconds) {
    if (has_ended(event)) return true;
    const auto signal = std::make_shared<Signal>();
    auto user = std::make_unique<std::shared_ptr<Signal>>(signal);
    check(ctx.host, clSetEventCallback(event, CL_COMPLETE, on_done, user.get()),
          "clSetEventCallback");
    user.release(); // on_done releases it
    size_t ended = ended_marks(ctx);
    const auto start = std::chrono::steady_clock::now();
    auto second = start + std::chrono::seconds(1); // the end of the current second
    for (uint32_t silent = 0; silent < seconds;) {
        const auto now = std::chrono::steady_clock::now();
        {
            std::unique_lock lock(signal->mutex);
            if (signal->came.wait_for(lock, next_look(now - start), [&] { return signal->done; }))
                return true;
        }
        if (has_ended(event)) return true;
        if (now < second) continue;
        second += std::chrono::seconds(1);
        ctx.kernels->slow_start().passed(ctx.host, ctx.device.name.c_str(), 1);
        const size_t marks = ended_marks(ctx);
        silent = marks > ended ? 0 : silent + 1;
        ended = marks;
    }
    return false;
}

void *map(keel_ctx &ctx, const keel_buffer &b) {
    cl_int code = CL_SUCCESS;
    void *at =
        clEnqueueMapBuffer(ctx.queue.get(), b.memory.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                           b.size, 0, nullptr, nullptr, &code);
    check(ctx.host, code, "clEnqueueMapBuffer");
    return at;
}

} // namespace

void require_alive(const keel_ctx &ctx) {
    if (ctx.timed_out)
        refuse(ctx.host, KEEL_E_DEVICE_LOST, "the device was lost in an earlier call");
}

void wait_for(keel_ctx &ctx, cl_event event, const char *what) {
    require_alive(ctx);
    check(ctx.host, clFlush(ctx.queue.get()), "clFlush");
    if (!await(ctx, event, ctx.wait_seconds)) {
        ctx.timed_out = true;
        refuse(ctx.host, KEEL_E_DEVICE_LOST,
               "the device has not answered for %u seconds (parameter wait_seconds)",
               ctx.wait_seconds);
    }
    // reports an error if the command failed
    check(ctx.host, clWaitForEvents(1, &event), what, true);
}

bool settle(keel_ctx &ctx) noexcept {
    if (ctx.gone) return false;
    bool ended = true;
    const keel_status status = guarded(nullptr, [&] {
        cl_event event = nullptr;
        check(nullptr, clEnqueueMarkerWithWaitList(ctx.queue.get(), 0, nullptr, &event),
              "a marker");
        const Event marker(event);
        // If a queue accepts no new command, it can still be running earlier commands.
        const bool takes = clFlush(ctx.queue.get()) == CL_SUCCESS;
        ended = await(ctx, event,
                      ctx.timed_out ? std::max(last_seconds, ctx.wait_seconds)
                      : takes       ? ctx.wait_seconds
                                    : std::min(last_seconds, ctx.wait_seconds));
    });
    // a lost device accepts no marker and runs nothing
    if (status != KEEL_OK) ended = !ctx.timed_out;
    ctx.gone = !ended;
    if (ctx.gone && KEEL_HAS(ctx.host, keel_host, log))
        ctx.host->log(ctx.host, KEEL_LOG_ERROR,
                      "the lost device does not answer; its buffers are not freed, because it may "
                      "still use them");
    return ended;
}

void give_to_device(keel_ctx &ctx) {
    if (!ctx.host_has || ctx.shared.empty()) return;
    for (keel_buffer *b : ctx.shared)
        check(ctx.host,
              clEnqueueUnmapMemObject(ctx.queue.get(), b->memory.get(), b->mapped, 0, nullptr,
                                      nullptr),
              "clEnqueueUnmapMemObject");
    ctx.host_has = false;
}

void give_to_host(keel_ctx &ctx) {
    if (ctx.host_has || ctx.shared.empty()) return;
    for (keel_buffer *b : ctx.shared)
        if (map(ctx, *b) != b->mapped)
            refuse(ctx.host, KEEL_E_INTERNAL,
                   "'%s' maps a buffer at another address each time; expected the same address",
                   ctx.device.name.c_str());
    ctx.host_has = true;
}

void share(keel_ctx &ctx, keel_buffer &b) {
    // after this wait all shared buffers are mapped for the host, so the new one can be mapped too
    finish(ctx);
    ctx.shared.reserve(ctx.shared.size() + 1);
    b.mapped = map(ctx, b);
    check(ctx.host,
          clEnqueueUnmapMemObject(ctx.queue.get(), b.memory.get(), b.mapped, 0, nullptr, nullptr),
          "clEnqueueUnmapMemObject");
    void *again = map(ctx, b);
    if (again != b.mapped) {
        clEnqueueUnmapMemObject(ctx.queue.get(), b.memory.get(), again, 0, nullptr, nullptr);
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "'%s' maps a buffer at another address each time; expected the same address",
               ctx.device.name.c_str());
    }
    ctx.shared.push_back(&b);
}

bool is_done(keel_ctx &ctx, uint64_t ticket) {
    while (!ctx.marks.empty()) {
        cl_int state = CL_QUEUED;
        check(ctx.host,
              clGetEventInfo(ctx.marks.front().event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS,
                             sizeof state, &state, nullptr),
              "clGetEventInfo");
        if (state < 0) check(ctx.host, state, "queued work", true);
        if (state != CL_COMPLETE) break;
        ctx.marks.pop_front();
    }
    return ctx.marks.empty() || ctx.marks.front().ticket > ticket;
}

void finish(keel_ctx &ctx) {
    require_alive(ctx);
    if (ctx.queued || !is_done(ctx, ctx.ticket)) {
        cl_event event = nullptr;
        check(ctx.host, clEnqueueMarkerWithWaitList(ctx.queue.get(), 0, nullptr, &event),
              "clEnqueueMarkerWithWaitList");
        const Event marker(event);
        wait_for(ctx, event, "queued work");
        ctx.kernels->slow_start().work_ended();
        ctx.queued = false;
        is_done(ctx, ctx.ticket);
    }
    give_to_host(ctx);
}

void set_arg(keel_ctx &ctx, cl_kernel kernel, cl_uint index, const void *value, size_t size) {
    check(ctx.host, clSetKernelArg(kernel, index, size, value), "clSetKernelArg");
}

void enqueue(keel_ctx &ctx, cl_kernel kernel, const Grid &grid) {
    const size_t global[3] = {grid.groups[0] * grid.local[0], grid.groups[1] * grid.local[1],
                              grid.groups[2] * grid.local[2]};
    if (ctx.recording != nullptr) {
        keel_recording::Launch &launch = ctx.recording->launches.back();
        std::copy_n(global, 3, launch.global);
        std::copy_n(grid.local, 3, launch.local);
        return;
    }
    require_alive(ctx);
    give_to_device(ctx);
    ctx.queued = true;
    cl_event event = nullptr;
    std::optional<keel_gpu::DriverTime> time; // some drivers compile kernels in this call
    keel_gpu::SlowStart &slow_start = ctx.kernels->slow_start();
    if (slow_start.is_watched()) time.emplace(slow_start, ctx.host, ctx.device.name.c_str());
    check(ctx.host,
          clEnqueueNDRangeKernel(ctx.queue.get(), kernel, 3, nullptr, global, grid.local, 0,
                                 nullptr, ctx.timing.is_on() ? &event : nullptr),
          "clEnqueueNDRangeKernel");
    if (event != nullptr) ctx.timing.queued(Event(event));
}

} // namespace keel_opencl
