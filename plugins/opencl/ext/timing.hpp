// keel.timestamps/1: the times at which the device ran each op. Kernels are timed by their events.
// The queue that takes times exists only while timing is on.
#pragma once

#include "opencl/cl.hpp"

#include <deque>

namespace keel_opencl {

class Timing {
  public:
    bool is_on() const { return on_; }
    // Drops all times, and numbers ops from 1 again.
    void restart(bool on);
    // Call this after a kernel of the current op was queued. In an in-order queue, the first and
    // the last kernel give the op's time.
    void queued(Event event);
    // Call this after all kernels of the current op were queued.
    void op_done();
    // Moves the times of finished ops to the arrays. Returns the number of ops.
    uint32_t read(uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns, uint32_t capacity);

  private:
    struct Op {
        uint64_t number;
        Event first, last; // last: empty if the op has one kernel
    };
    // the most times that are kept until they are read; the oldest is dropped
    static constexpr size_t most_kept = 1 << 16;

    bool on_ = false;
    uint64_t ops_ = 0;
    Event first_, last_; // of the current op
    std::deque<Op> done_;
};

} // namespace keel_opencl
