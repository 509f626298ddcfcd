#include "opencl/ext/timing.hpp"

#include "opencl/ops/ops.hpp"

namespace keel_opencl {

void Timing::restart(bool on) {
    on_ = on;
    ops_ = 0;
    first_.reset();
    last_.reset();
    done_.clear();
}

void Timing::queued(Event event) { (first_ ? last_ : first_) = std::move(event); }

void Timing::op_done() {
    if (!on_) return;
    ++ops_;
    if (!first_) return; // the op queued no kernel, so it has no time
    done_.push_back({ops_, std::move(first_), std::move(last_)});
    if (done_.size() > most_kept) done_.pop_front();
}

namespace {

bool time_of(const Event &event, cl_profiling_info what, uint64_t &ns) {
    cl_ulong value = 0;
    if (clGetEventProfilingInfo(event.get(), what, sizeof value, &value, nullptr) != CL_SUCCESS)
        return false;
    ns = value;
    return true;
}

// Replaces the queue by a queue with or without profiling. Both queues execute in order. All work
// is finished before the replacement, so callers do not notice the change.
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
        if (!has_ended(last.get())) break; // the wait for an op that failed reports its error
        if (!time_of(op.first, CL_PROFILING_COMMAND_START, begin_ns[n]) ||
            !time_of(last, CL_PROFILING_COMMAND_END, end_ns[n]))
            continue;
        number[n++] = op.number;
    }
    return n;
}

void time_ops(keel_ctx &ctx, bool on) {
    if (on != ctx.timing.is_on()) change_queue(ctx, on);
    ctx.timing.restart(on);
}

bool times_ops(const keel_ctx &ctx) { return ctx.timing.is_on(); }

uint32_t read_times(keel_ctx &ctx, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                    uint32_t capacity) {
    return ctx.timing.read(number, begin_ns, end_ns, capacity);
}

// OpenCL 1.2 cannot read the device's clock. The end time of a marker command is used instead.
uint64_t device_time(keel_ctx &ctx) {
    if (!ctx.timing.is_on()) refuse(ctx.host, KEEL_E_UNSUPPORTED, "no times are taken");
    cl_event marker = nullptr;
    check(ctx.host, clEnqueueMarkerWithWaitList(ctx.queue.get(), 0, nullptr, &marker),
          "clEnqueueMarkerWithWaitList");
    const Event event(marker);
    wait_for(ctx, marker, "clWaitForEvents");
    uint64_t ns = 0;
    if (!time_of(event, CL_PROFILING_COMMAND_END, ns) || ns == 0)
        refuse(ctx.host, KEEL_E_UNSUPPORTED, "the driver does not time markers");
    return ns;
}

} // namespace keel_opencl
