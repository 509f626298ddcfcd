#pragma once

#include <keel/backend.h>

#include <cstdint>
#include <memory>
#include <string>

namespace keel {

class Device;
class DeviceTimes;
class StepRecorder;
class Trace;

// When work is submitted and waited for. It is the core's, not the backend's, and never changes a result.
struct SyncStrategy {
    enum class Kind {
        automatic, // the backend's own choice (keel_ctx_info.sync)
        lazy,      // submit at natural ends (a chunk, a step), wait only where the host reads
        eager,     // submit and wait after every op: for debugging, errors surface at their op
        batched,   // submit every `ops` ops
    };
    Kind kind = Kind::automatic;
    uint32_t ops = 50; // batched only
};

std::string to_string(const SyncStrategy &);

// The one stream of a device's context: counts ops, and submits and waits as the strategy says. Not thread-safe: one user at a
// time, like the context itself.
class Stream {
  public:
    struct Counters {
        uint64_t ops = 0, submits = 0, waits = 0, reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
        uint64_t replays = 0; // recorded steps that were submitted again; their ops are among the ops
    };

    explicit Stream(Device &device);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    void set_strategy(const SyncStrategy &); // automatic is resolved with the device's info
    const SyncStrategy &strategy() const { return strategy_; }

    void op_queued(const char *op);             // after each op that the backend took
    void step_queued(uint64_t ops, bool again); // after a recorded step was submitted
    void write_queued(uint64_t bytes);
    void end_of_step(); // a natural end: everything but eager submits here
    uint64_t flush();   // submits what is queued, ops and writes; the ticket. Nothing queued: the last one
    void wait();        // flush, then wait for all; nothing in flight: no call at all
    void read(keel_buffer *, uint64_t offset, void *dst, uint64_t bytes); // waits, then copies to the host

    const Counters &counters() const { return counters_; }
    // Submits, waits and reads are recorded there from now on, and when the device ran each op where the backend tells; NULL: nowhere. It
    // outlives this, or NULL is set before it goes.
    void set_trace(Trace *trace);
    Trace *trace() const { return trace_; }
    // While it is set ops may be held back in it: it is told before anything else is done with the device.
    void set_recorder(StepRecorder *recorder) { recorder_ = recorder; }
    void queue_held_back() {
        if (recorder_ != nullptr) interrupt_recorder();
    }
    bool pending() const { return pending_ > 0; } // ops that were not submitted yet

  private:
    void interrupt_recorder();
    void submit_as(const char *what);
    void wait_as(const char *what);

    Device &device_;
    SyncStrategy strategy_{SyncStrategy::Kind::lazy, 0};
    Counters counters_;
    Trace *trace_ = nullptr;
    StepRecorder *recorder_ = nullptr;
    std::unique_ptr<DeviceTimes> times_; // NULL: no trace, or the backend does not tell
    uint64_t pending_ = 0;               // ops since the last submit
    uint64_t ticket_ = 0;                //
    bool dirty_ = false;                 // ops or writes since the last submit
    bool in_flight_ = false;             // submitted work that was not waited for
};

} // namespace keel
