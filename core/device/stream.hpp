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

// Ops that are not yet passed to the device. Stream requests them before it uses the device.
class HeldBackOps {
  public:
    virtual void interrupt() = 0; // queues the ops that are held back

  protected:
    ~HeldBackOps() = default;
};

// When work is submitted and waited for. It is the core's, not the backend's, and never changes a
// result.
struct SyncStrategy {
    enum class Kind {
        automatic, // the backend's own choice (keel_ctx_info.sync)
        lazy,      // submit at natural ends (a chunk, a step), wait only where the host reads
        eager,     // submit and wait after every op: for debugging, errors surface at their op
        batched,   // submit every `ops` ops
    };
    Kind kind = Kind::automatic;
    uint32_t ops = defaults::ops_per_submit; // batched only
};

std::string to_string(const SyncStrategy &);

class Stream;

// A few bytes that are read from the device later, while ops that were queued after them run
// (keel.read_later/1). If it is destroyed without finish(), the bytes are discarded. Its stream
// outlives it.
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

    explicit operator bool() const { return stream_ != nullptr; } // something was asked for
    void
    finish(void *dst); // waits for it, submitting it if nobody has; there is none any more then
    void drop() noexcept;

  private:
    friend class Stream;
    Stream *stream_ = nullptr;
    uint64_t number_ = 0, bytes_ = 0;
    // The stream's, when it was asked for: the last submit, how often all had been waited for, and
    // what had been queued.
    uint64_t ticket_ = 0, idle_ = 0, queued_ = 0;
};

// The one stream of a device's context: counts ops, and submits and waits as the strategy says. Not
// thread-safe: one user at a time, like the context itself.
// It has 16 members because it counts for reports and serves two extensions of backends.
class Stream {
  public:
    struct Counters {
        uint64_t ops = 0, submits = 0, waits = 0, reads = 0, writes = 0, read_bytes = 0,
                 written_bytes = 0;
        uint64_t replays =
            0; // recorded steps that were submitted again; their ops are among the ops

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

    void set_strategy(const SyncStrategy &); // automatic is resolved with the device's info
    const SyncStrategy &strategy() const { return strategy_; }

    // After each op that the backend took. A trace of the device calls the op `name`; NULL: as
    // `label`.
    void op_queued(const char *label, const char *name = nullptr);
    void step_queued(uint64_t ops, bool again); // after a recorded step was submitted
    void write_queued(uint64_t bytes);
    void end_of_step(); // a natural end: everything but eager submits here
    uint64_t
    flush();     // submits what is queued, ops and writes; the ticket. Nothing queued: the last one
    void wait(); // flush, then wait for all; nothing in flight: no call at all
    void read(keel_buffer *, uint64_t offset, void *dst,
              uint64_t bytes); // waits, then copies to the host

    // Whether the host may look at results while later work runs: the backend's stream does not
    // stop for it (keel.read_later/1), nor does the strategy.
    bool reads_later();
    // At most KEEL_READ_LATER_BYTES, with the values at that point of the stream. Empty if the
    // backend cannot do it, or too many reads are pending.
    LaterRead start_read(keel_buffer *, uint64_t offset, uint64_t bytes);

    // Requests to the backend, and submits and waits that the backend reports to have made on its
    // own (keel.stream_counts/1).
    const Counters &counters() const { return counters_; }
    // Submits, waits and reads are recorded there from now on, and when the device ran each op
    // where the backend tells; NULL: nowhere. It outlives this, or NULL is set before it goes.
    void set_trace(Trace *trace);
    Trace *trace() const { return trace_; }
    // The stream interrupts `ops` before it uses the device. NULL: no op is held back.
    void set_held_back(HeldBackOps *ops) { held_back_ = ops; }
    void queue_held_back() {
        if (held_back_ != nullptr) held_back_->interrupt();
    }
    bool pending() const { return pending_ > 0; } // ops that were not submitted yet

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
    std::unique_ptr<DeviceTimes> times_; // NULL: no trace, or the backend does not tell
    uint64_t pending_ = 0;               // ops since the last submit
    uint64_t ticket_ = 0;                //
    bool dirty_ = false;                 // ops or writes since the last submit
    bool in_flight_ = false;             // submitted work that was not waited for
    uint64_t idle_ = 0;                  // times that all was waited for
    uint64_t queued_ = 0;                // ops, steps, writes and later reads
    bool adopted_ = false;               // the extensions were looked for
    std::optional<keel_read_later> later_;
    std::optional<keel_stream_counts_table> own_;
    keel_stream_counts own_counts_{}; // as last told
};

} // namespace keel
