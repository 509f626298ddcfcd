// keel.timestamps/1: when the device ran each op. Kernels are timed by their events, of a queue
// that is there only while somebody asks.
#pragma once

#include "opencl/cl.hpp"

#include <deque>

namespace keel_opencl {

class Timing {
  public:
    bool is_on() const { return on_; }
    // Forgets what was timed, and numbers from 1 again.
    void restart(bool on);
    // A kernel of the running op was queued. In an in-order queue the first and the last one say it
    // all.
    void queued(Event event);
    // The running op is queued.
    void op_done();
    // Moves the times of what is done to the arrays; how many.
    uint32_t read(uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns, uint32_t capacity);

  private:
    struct Op {
        uint64_t number;
        Event first, last; // last: none if there is one kernel
    };
    static constexpr size_t most_kept = 1 << 16; // that nobody has read; the oldest goes

    bool on_ = false;
    uint64_t ops_ = 0;
    Event first_, last_; // of the running op
    std::deque<Op> done_;
};

} // namespace keel_opencl
