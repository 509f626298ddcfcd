// keel.timestamps/1: the times at which the device ran each op. The times come from the kernels'
// events. The queue with profiling exists only while timing is on.
#pragma once

#include "opencl/cl.hpp"

#include <deque>

namespace keel_opencl {

class Timing {
  public:
    bool is_on() const { return on_; }
    // Drops all times. The next op has number 1.
    void restart(bool on);
    // Called after a kernel of the current op was queued. The queue executes in order, so the first
    // and the last kernel give the op's time.
    void queued(Event event);
    // Called after all kernels of the current op were queued.
    void op_done();
    // Moves the times of finished ops to the arrays, at most `capacity`. Returns the number of ops.
    uint32_t read(uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns, uint32_t capacity);

  private:
    struct Op {
        uint64_t number;
        Event first, last; // last: empty if the op has only one kernel
    };
    // Largest number of times that are kept until they are read. If there are more times, the
    // oldest is dropped.
    static constexpr size_t most_kept = 1 << 16;

    bool on_ = false;
    uint64_t ops_ = 0;
    Event first_, last_; // events of the current op
    std::deque<Op> done_;
};

} // namespace keel_opencl
