#include "opencl/ext/timing.hpp"

#include "opencl/ext/extensions.hpp"

namespace keel_opencl {

void Timing::restart(bool on) {
    on_ = on;
    ops_ = 0;
    first_.reset();
    last_.reset();
    done_.clear();
}

void Timing::queued(Event event) {
    (first_ ? last_ : first_) = std::move(event);
}

void Timing::op_done() {
    if (!on_) return;
    ++ops_;
    if (!first_) return; // nothing to do: no time
    done_.push_back({ops_, std::move(first_), std::move(last_)});
    if (done_.size() > most_kept) done_.pop_front();
}

namespace {

bool is_complete(const Event &event) {
    cl_int state = CL_QUEUED;
    return clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr) ==
               CL_SUCCESS &&
           state <= CL_COMPLETE; // or failed: that surfaces where it is waited for
}

bool time_of(const Event &event, cl_profiling_info what, uint64_t &ns) {
    cl_ulong value = 0;
    if (clGetEventProfilingInfo(event.get(), what, sizeof value, &value, nullptr) != CL_SUCCESS) return false;
    ns = value;
    return true;
}

// In-order queues alike but for the taking of times; which one serves is no matter to anybody once all work is done.
void change_queue(keel_ctx &ctx, bool timed) {
    finish(ctx);
    cl_int code = CL_SUCCESS;
    Queue queue(clCreateCommandQueue(ctx.context.get(), ctx.device.device,
                                     timed ? CL_QUEUE_PROFILING_ENABLE : 0, &code));
    if (timed && code == CL_INVALID_QUEUE_PROPERTIES)
        refuse(ctx.host, KEEL_E_UNSUPPORTED, "'%s' does not time kernels", ctx.device.name.c_str());
    check(ctx.host, code, "clCreateCommandQueue");
    ctx.staging->use(queue.get());
    ctx.queue = std::move(queue);
}

} // namespace

uint32_t Timing::read(uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns, uint32_t capacity) {
    uint32_t n = 0;
    for (; n < capacity && !done_.empty(); done_.pop_front()) {
        const Op &op = done_.front();
        const Event &last = op.last ? op.last : op.first;
        if (!is_complete(last)) break;
        if (!time_of(op.first, CL_PROFILING_COMMAND_START, begin_ns[n]) ||
            !time_of(last, CL_PROFILING_COMMAND_END, end_ns[n]))
            continue;
        number[n++] = op.number;
    }
    return n;
}

namespace {

keel_status KEEL_CALL times_enable(keel_ctx *ctx, uint32_t on) noexcept {
    return guarded(ctx->host, [&] {
        if ((on != 0) != ctx->timing.is_on()) change_queue(*ctx, on != 0);
        ctx->timing.restart(on != 0);
    });
}

keel_status KEEL_CALL times_read(keel_ctx *ctx, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                                 uint32_t capacity, uint32_t *n) noexcept {
    *n = 0;
    return guarded(ctx->host, [&] { *n = ctx->timing.read(number, begin_ns, end_ns, capacity); });
}

// OpenCL 1.2 has no clock to read, but the end of a command that has nothing to do is timed as well.
keel_status KEEL_CALL times_now(keel_ctx *ctx, uint64_t *ns) noexcept {
    *ns = 0;
    return guarded(ctx->host, [&] {
        if (!ctx->timing.is_on()) refuse(ctx->host, KEEL_E_UNSUPPORTED, "no times are taken");
        cl_event marker = nullptr;
        check(ctx->host, clEnqueueMarkerWithWaitList(ctx->queue.get(), 0, nullptr, &marker),
              "clEnqueueMarkerWithWaitList");
        const Event event(marker);
        wait_for(*ctx, marker, "clWaitForEvents");
        if (!time_of(event, CL_PROFILING_COMMAND_END, *ns) || *ns == 0)
            refuse(ctx->host, KEEL_E_UNSUPPORTED, "the driver does not time markers");
    });
}

} // namespace

const keel_timestamps timestamps = {KEEL_HEADER(keel_timestamps), times_enable, times_read, times_now};

} // namespace keel_opencl
