#include "device/stream.hpp"

#include "device/device.hpp"
#include "device/device_times.hpp"
#include "device/trace.hpp"

#include "base/log.hpp"

#include <fmt/format.h>

namespace keel {

std::string to_string(const SyncStrategy &s) {
    switch (s.kind) {
    case SyncStrategy::Kind::automatic: return "auto";
    case SyncStrategy::Kind::lazy: return "lazy";
    case SyncStrategy::Kind::eager: return "eager";
    case SyncStrategy::Kind::batched: break;
    }
    return fmt::format("batched: {}", s.ops);
}

Stream::Stream(Device &device) : device_(device) {}
Stream::~Stream() = default;

void Stream::set_trace(Trace *trace) {
    if (trace == trace_) return;
    if (times_) collect_times();
    times_.reset();
    trace_ = trace;
    if (trace_ != nullptr) times_ = DeviceTimes::start(device_, *trace_);
}

// Waits, then collects the times of the ops that finished after the last wait.
void Stream::collect_times() {
    if (times_->waiting() == 0 || device_.is_lost()) return;
    try {
        wait();
        times_->collect();
    } catch (const std::exception &error) {
        log().warn("the trace lacks the last times of backend {}: {}", device_.plugin(),
                   error.what());
    }
}

void Stream::set_strategy(const SyncStrategy &wanted) {
    strategy_ = wanted;
    if (wanted.kind == SyncStrategy::Kind::automatic) {
        const keel_ctx_info &info = device_.info();
        switch (info.sync) {
        case KEEL_SYNC_EAGER: strategy_ = {SyncStrategy::Kind::eager, 0}; break;
        case KEEL_SYNC_BATCHED:
            strategy_ = {SyncStrategy::Kind::batched,
                         info.sync_ops > 0 ? info.sync_ops : defaults::ops_per_submit};
            break;
        default: strategy_ = {SyncStrategy::Kind::lazy, 0};
        }
    }
}

void Stream::op_queued(const char *label, const char *name) {
    ++counters_.ops;
    ++queued_;
    if (times_) times_->queued(label, name != nullptr ? name : label);
    ++pending_;
    dirty_ = true;
    if (strategy_.kind == SyncStrategy::Kind::eager) {
        wait_as(label);
    } else if (strategy_.kind == SyncStrategy::Kind::batched && pending_ >= strategy_.ops) {
        flush();
    }
}

void Stream::step_queued(uint64_t ops, bool again) {
    counters_.ops += ops;
    ++queued_;
    if (again) ++counters_.replays;
    pending_ += ops;
    dirty_ = true;
    if (strategy_.kind == SyncStrategy::Kind::batched && pending_ >= strategy_.ops) flush();
}

void Stream::write_queued(uint64_t bytes) {
    ++counters_.writes;
    ++queued_;
    counters_.written_bytes += bytes;
    // A write has copied its source when it returns. So the write needs no submit of its own: the
    // next submit includes it.
    dirty_ = true;
}

void Stream::end_of_step() {
    if (pending_ > 0) flush();
}

uint64_t Stream::flush() {
    submit_as("flush");
    return ticket_;
}

void Stream::wait() { wait_as("wait"); }

// Submits the ops and writes that were queued since the last submit. Errors say that the call
// `what` failed.
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
    count_own();
}

void Stream::wait_as(const char *what) {
    submit_as(what);
    if (!in_flight_) return;
    device_.require_alive(what);
    ++counters_.waits;
    const TraceSpan span(trace_, "wait", "stream", "after", what);
    device_.check(what, [&] { return device_.table().wait(device_.ctx(), ticket_); });
    in_flight_ = false;
    ++idle_;
    if (times_) times_->collect();
}

void Stream::read(keel_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes) {
    if (bytes == 0) return;
    device_.require_alive("buffer_read");
    queue_held_back();
    // The backend's buffer_read submits and waits by itself. The counters include that submit and
    // wait.
    if (dirty_) ++counters_.submits;
    const bool waits = dirty_ || in_flight_;
    if (waits) ++counters_.waits;
    ++counters_.reads;
    counters_.read_bytes += bytes;
    const TraceSpan span(trace_, waits ? "wait and read" : "read", "stream");
    device_.check("buffer_read", [&] {
        return device_.table().buffer_read(device_.ctx(), buffer, offset, dst, bytes);
    });
    pending_ = 0;
    dirty_ = in_flight_ = false;
    ++idle_;
    count_own();
    if (times_) times_->collect();
}

// Extensions of the backend

namespace {

template <typename Table>
void adopt_extension(Device &device, const char *id, uint32_t required, std::optional<Table> &out) {
    const void *theirs = device.extension(id);
    if (theirs == nullptr) return;
    Table table;
    if (keel_adopt(&table, sizeof table, theirs, required) == KEEL_OK) {
        out = table;
        return;
    }
    log().warn("backend {}: the plugin's {} table is too small or has another ABI major version; "
               "Keel does not use the table",
               device.plugin(), id);
}

} // namespace

void Stream::adopt_extensions() {
    if (std::exchange(adopted_, true)) return;
    adopt_extension(device_, KEEL_EXT_READ_LATER, KEEL_PREFIX(keel_read_later, finish), later_);
    if (later_ && later_->serves != nullptr && later_->serves(device_.ctx()) == 0) later_.reset();
    adopt_extension(device_, KEEL_EXT_STREAM_COUNTS, KEEL_PREFIX(keel_stream_counts_table, read),
                    own_);
}

// Counts the submits and waits that the backend has made on its own since the last call of this
// function. Such submits and waits are not an error.
void Stream::count_own() {
    adopt_extensions();
    if (!own_) return;
    keel_stream_counts now = {KEEL_HEADER(keel_stream_counts)};
    HostServices::drop_error();
    if (own_->read(device_.ctx(), &now) != KEEL_OK) return HostServices::drop_error();
    counters_.submits += now.submits - own_counts_.submits;
    counters_.waits += now.waits - own_counts_.waits;
    own_counts_ = now;
}

bool Stream::reads_later() {
    adopt_extensions();
    return later_ && strategy_.kind != SyncStrategy::Kind::eager;
}

LaterRead Stream::start_read(keel_buffer *buffer, uint64_t offset, uint64_t bytes) {
    LaterRead read;
    if (!reads_later()) return read;
    device_.require_alive("read_later");
    queue_held_back();
    HostServices::drop_error();
    const keel_status status = later_->start(device_.ctx(), buffer, offset, bytes, &read.number_);
    if (status == KEEL_E_UNSUPPORTED) {
        HostServices::drop_error();
        return read;
    }
    if (status != KEEL_OK) device_.fail(status, "read_later");
    read.stream_ = this;
    read.bytes_ = bytes;
    read.ticket_ = ticket_;
    read.idle_ = idle_;
    read.queued_ = ++queued_;
    dirty_ = true;
    return read;
}

void Stream::finish_read(const LaterRead &read, void *dst) {
    device_.require_alive("read_later");
    const bool waits = read.idle_ == idle_; // false if the host has waited for all work since the
                                            // read was queued; then the read is already finished
    if (waits && dirty_ && read.ticket_ == ticket_) {
        try {
            submit_as("read_later");
        } catch (...) {
            later_->finish(device_.ctx(), read.number_, nullptr);
            throw;
        }
    }
    if (waits) ++counters_.waits;
    ++counters_.reads;
    counters_.read_bytes += read.bytes_;
    const TraceSpan span(trace_, waits ? "wait and read" : "read", "stream");
    device_.check("read_later", [&] { return later_->finish(device_.ctx(), read.number_, dst); });
    if (waits && read.queued_ == queued_) { // nothing was queued after this read
        in_flight_ = false;
        ++idle_;
    }
    // Aligning the two clocks can wait for all work. So this function collects times only if the
    // backend's memory for times might run out.
    if (times_ && times_->waiting() >= 1024) times_->collect();
}

void LaterRead::finish(void *dst) {
    // The backend drops the read even if this call fails, so stream_ is cleared before the call.
    std::exchange(stream_, nullptr)->finish_read(*this, dst);
}

void LaterRead::drop() noexcept {
    Stream *stream = std::exchange(stream_, nullptr);
    if (stream == nullptr || stream->device_.is_lost()) return;
    stream->later_->finish(stream->device_.ctx(), number_, nullptr);
    HostServices::drop_error();
}

} // namespace keel
