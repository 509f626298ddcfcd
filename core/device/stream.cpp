#include "device/stream.hpp"

#include "device/device.hpp"
#include "device/device_times.hpp"
#include "device/step_recorder.hpp"
#include "device/trace.hpp"

#include <fmt/format.h>

namespace keel {

std::string to_string(const SyncStrategy &s) {
    switch (s.kind) {
    case SyncStrategy::Kind::automatic:
        return "auto";
    case SyncStrategy::Kind::lazy:
        return "lazy";
    case SyncStrategy::Kind::eager:
        return "eager";
    case SyncStrategy::Kind::batched:
        break;
    }
    return fmt::format("batched: {}", s.ops);
}

Stream::Stream(Device &device) : device_(device) {}
Stream::~Stream() = default;

void Stream::set_trace(Trace *trace) {
    if (trace == trace_) return;
    times_.reset();
    trace_ = trace;
    if (trace_ != nullptr) times_ = DeviceTimes::start(device_, *trace_);
}

void Stream::set_strategy(const SyncStrategy &wanted) {
    strategy_ = wanted;
    if (wanted.kind == SyncStrategy::Kind::automatic) {
        const keel_ctx_info &info = device_.info();
        switch (info.sync) {
        case KEEL_SYNC_EAGER:
            strategy_ = {SyncStrategy::Kind::eager, 0};
            break;
        case KEEL_SYNC_BATCHED:
            strategy_ = {SyncStrategy::Kind::batched, info.sync_ops > 0 ? info.sync_ops : 50};
            break;
        default:
            strategy_ = {SyncStrategy::Kind::lazy, 0};
        }
    }
}

void Stream::op_queued(const char *op) {
    ++counters_.ops;
    if (times_) times_->queued(op);
    ++pending_;
    dirty_ = true;
    if (strategy_.kind == SyncStrategy::Kind::eager) {
        wait_as(op);
    } else if (strategy_.kind == SyncStrategy::Kind::batched && pending_ >= strategy_.ops) {
        flush();
    }
}

void Stream::step_queued(uint64_t ops, bool again) {
    counters_.ops += ops;
    if (again) ++counters_.replays;
    pending_ += ops;
    dirty_ = true;
    if (strategy_.kind == SyncStrategy::Kind::batched && pending_ >= strategy_.ops) flush();
}

void Stream::interrupt_recorder() {
    recorder_->interrupt();
}

void Stream::write_queued(uint64_t bytes) {
    ++counters_.writes;
    counters_.written_bytes += bytes;
    // A write has copied its source when it returns: it goes with the next submit and asks for none of its own.
    dirty_ = true;
}

void Stream::end_of_step() {
    if (pending_ > 0) flush();
}

uint64_t Stream::flush() {
    submit_as("flush");
    return ticket_;
}

void Stream::wait() {
    wait_as("wait");
}

// Submits what was queued since the last time, ops or writes. `what` is blamed for an error.
void Stream::submit_as(const char *what) {
    queue_held_back();
    if (!dirty_) return;
    device_.require_alive(what);
    ++counters_.submits;
    const TraceSpan span(trace_, "submit", "stream", "after", what);
    uint64_t ticket = 0;
    device_.check(what, [&] { return device_.table().flush(device_.ctx(), &ticket); });
    ticket_ = ticket;
    pending_ = 0;
    dirty_ = false;
    in_flight_ = true;
}

void Stream::wait_as(const char *what) {
    submit_as(what);
    if (!in_flight_) return;
    device_.require_alive(what);
    ++counters_.waits;
    const TraceSpan span(trace_, "wait", "stream", "after", what);
    device_.check(what, [&] { return device_.table().wait(device_.ctx(), ticket_); });
    in_flight_ = false;
    if (times_) times_->collect();
}

void Stream::read(keel_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes) {
    if (bytes == 0) return;
    device_.require_alive("buffer_read");
    queue_held_back();
    // The backend's buffer_read submits and waits by itself; it is counted as what it is.
    if (dirty_) ++counters_.submits;
    const bool waits = dirty_ || in_flight_;
    if (waits) ++counters_.waits;
    ++counters_.reads;
    counters_.read_bytes += bytes;
    const TraceSpan span(trace_, waits ? "wait and read" : "read", "stream");
    device_.check("buffer_read",
                  [&] { return device_.table().buffer_read(device_.ctx(), buffer, offset, dst, bytes); });
    pending_ = 0;
    dirty_ = in_flight_ = false;
    if (times_) times_->collect();
}

} // namespace keel
