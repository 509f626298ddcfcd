#pragma once

#include "base/defaults.hpp"

#include <keel/ext/draft/read_later.h>
#include <keel/ext/draft/stream_counts.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace keel {

class Device;
class DeviceTimes;
class Trace;

// Ops that are not yet passed to the device. Stream calls interrupt() before it uses the device.
class HeldBackOps {
  public:
    virtual void interrupt() = 0; // queues the held-back ops

  protected:
    ~HeldBackOps() = default;
};

// Decides when work is submitted and when the host waits for it. The core applies the strategy, not
// the backend. The strategy never changes a result.
struct SyncStrategy {
    enum class Kind {
        automatic, // the backend's own choice (keel_ctx_info.sync)
        lazy,      // submit at the end of a step or of a chunk of the prompt; wait only before the
                   // host reads
        // submit and wait after every op, for debugging: an error appears at the op that caused it
        eager,
        batched, // submit every `ops` ops
    };
    Kind kind = Kind::automatic;
    uint32_t ops = defaults::ops_per_submit; // only used by `batched`
};

std::string to_string(const SyncStrategy &);

class Stream;

// A read of a few bytes whose result the host fetches later (keel.read_later/1). Ops that are
// queued after the read can run in the meantime. If the object is destroyed without finish(), the
// bytes are discarded. Its stream must outlive it.
class LaterRead {
  public:
    LaterRead() = default;
    ~LaterRead() { drop(); }
    LaterRead(LaterRead &&other) noexcept { *this = std::move(other); }
    LaterRead &operator=(LaterRead &&other) noexcept {
        if (this == &other) return *this;
        drop();
        stream_ = std::exchange(other.stream_, nullptr);
        number_ = other.number_;
        bytes_ = other.bytes_;
        ticket_ = other.ticket_;
        idle_ = other.idle_;
        queued_ = other.queued_;
        return *this;
    }

    // Returns false if the object is empty: no read was started, or the read is finished.
    explicit operator bool() const { return stream_ != nullptr; }
    // Submits if needed, waits, and copies the bytes to dst. Then the object is empty.
    void finish(void *dst);
    void drop() noexcept;

  private:
    friend class Stream;
    Stream *stream_ = nullptr;
    uint64_t number_ = 0, bytes_ = 0;
    // State of the stream when the read was queued: ticket of the last submit, value of
    // Stream::idle_, value of Stream::queued_.
    uint64_t ticket_ = 0, idle_ = 0, queued_ = 0;
};

// The one stream of a device's context. It counts ops, and submits and waits according to the
// strategy. Not thread-safe: one user at a time, like the context.
// It has 16 members because it has counters for reports and uses two extensions of backends.
class Stream {
  public:
    struct Counters {
        uint64_t ops = 0, submits = 0, waits = 0, reads = 0, writes = 0, read_bytes = 0,
                 written_bytes = 0;
        uint64_t replays = 0; // recorded steps that were submitted again; `ops` includes their ops

        Counters &operator+=(const Counters &o) { return add<1>(o); }
        Counters &operator-=(const Counters &o) { return add<-1>(o); }
        friend Counters operator-(Counters a, const Counters &b) { return a -= b; }

      private:
        template <int sign> Counters &add(const Counters &o) {
            for (uint64_t Counters::*count :
                 {&Counters::ops, &Counters::submits, &Counters::waits, &Counters::reads,
                  &Counters::writes, &Counters::read_bytes, &Counters::written_bytes,
                  &Counters::replays})
                this->*count += sign > 0 ? o.*count : uint64_t{0} - o.*count;
            return *this;
        }
    };

    explicit Stream(Device &device);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    // `automatic` becomes the strategy in the device's info
    void set_strategy(const SyncStrategy &);
    const SyncStrategy &strategy() const { return strategy_; }

    // Call it after each op that the backend has accepted. A trace of the device shows the op as
    // `name`, or as `label` if `name` is NULL.
    void op_queued(const char *label, const char *name = nullptr);
    void step_queued(uint64_t ops, bool again); // call it after a recorded step was submitted
    void write_queued(uint64_t bytes);
    void end_of_step(); // the end of a step or chunk: submits, unless the strategy `eager` has
                        // already submitted
    // Submits queued ops and writes, and returns the ticket. If nothing is queued, returns the
    // ticket of the last submit.
    uint64_t flush();
    void wait(); // flushes, then waits for all work; makes no call if nothing is in flight
    void read(keel_buffer *, uint64_t offset, void *dst,
              uint64_t bytes); // waits for all work, then copies to the host

    // Returns true if the host can read results while later work runs. This requires that the
    // backend serves keel.read_later/1 and that the strategy does not wait after each op.
    bool reads_later();
    // Starts a read of at most KEEL_READ_LATER_BYTES. The read gets the values at this point of the
    // stream. The result is empty if the backend cannot do this, or if too many reads are
    // unfinished.
    LaterRead start_read(keel_buffer *, uint64_t offset, uint64_t bytes);

    // The submits and waits that the stream requested, and those that the backend made on its own
    // and reports (keel.stream_counts/1).
    const Counters &counters() const { return counters_; }
    // From now on, the trace records submits, waits and reads. If the backend reports the times of
    // ops, the trace also records these times. NULL: no trace. The trace must outlive the stream,
    // or the caller must set NULL before it destroys the trace.
    void set_trace(Trace *trace);
    Trace *trace() const { return trace_; }
    // The stream calls ops->interrupt() before it uses the device. NULL: no ops are held back.
    void set_held_back(HeldBackOps *ops) { held_back_ = ops; }
    void queue_held_back() {
        if (held_back_ != nullptr) held_back_->interrupt();
    }
    bool pending() const { return pending_ > 0; } // true if some op is not submitted yet

  private:
    friend class LaterRead;
    void submit_as(const char *what);
    void wait_as(const char *what);
    void finish_read(const LaterRead &read, void *dst);
    void collect_times();
    void adopt_extensions();
    void count_own();

    Device &device_;
    SyncStrategy strategy_{SyncStrategy::Kind::lazy, 0};
    Counters counters_;
    Trace *trace_ = nullptr;
    HeldBackOps *held_back_ = nullptr;
    // NULL if there is no trace, or the backend reports no times
    std::unique_ptr<DeviceTimes> times_;
    uint64_t pending_ = 0;   // ops since the last submit
    uint64_t ticket_ = 0;    //
    bool dirty_ = false;     // ops or writes were queued since the last submit
    bool in_flight_ = false; // work was submitted and not waited for
    uint64_t idle_ = 0;      // how often the host has waited for all work
    uint64_t queued_ = 0;    // number of ops, steps, writes and later reads
    bool adopted_ = false;   // true after the extensions were looked up
    std::optional<keel_read_later> later_;
    std::optional<keel_stream_counts_table> own_;
    keel_stream_counts own_counts_{}; // counts that the backend reported last
};

} // namespace keel
