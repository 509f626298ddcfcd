#pragma once

#include "device/device.hpp"
#include "run/pipeline.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// What a call of an op has to do, whatever does it. 0: not counted.
struct OpWork {
    double flop = 0;  // of matmul, attention, and scores of several queries (keys once more): two
                      // for each product that is summed
    double bytes = 0; // weights, K and V of the slots in use, and each input and output once
};
// `args` as the op was called with; the slots in use are read back from the device. Ops that move a
// cache (kv_gather, kv_rerotate), and scores over ranges of slots, are not counted.
OpWork op_work(Device &device, const PlannedOp &op, const keel_op_args *args);

// Whether the peak of f32 multiply-adds that the bench measures (probes/flops.hpp) limits the op.
// It does if the op runs on the processor in f32. A kernel named "fast" multiplies in 8 or 16 bits,
// so it may be faster than this peak.
bool f32_peak_limits(const Device &device, const PlannedOp &op);

// The calls of a part of the model ("down", of all layers) with one kernel.
struct OpTotal {
    std::string part, op, kernel;
    uint64_t calls = 0;
    double seconds = 0, flop = 0, bytes = 0; // of all calls
    bool f32_peak_limits = false;            // see the function of this name

    double flops() const { return seconds > 0 ? flop / seconds : 0; }             // per second
    double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; } // as flops
};

// Times every op of a pipeline's engines while it lives: from the call until the device is done,
// for which it waits after each op. So a device that queues shows what an op takes by itself, not
// what it adds to a step. Steps are not recorded and submitted again then, nor queued ahead. Not
// those that sequences share in a batch (keel.batched_decode/1). For the thread that runs the
// pipeline, which outlives this.
class OpTimes {
  public:
    explicit OpTimes(Pipeline &pipeline);
    ~OpTimes();
    OpTimes(const OpTimes &) = delete;
    OpTimes &operator=(const OpTimes &) = delete;

    // In the order in which they first ran.
    const std::vector<OpTotal> &totals() const { return totals_; }

  private:
    void add(Device &device, const PlannedOp &op, const keel_op_args *args, double seconds);

    using Clock = std::chrono::steady_clock;
    Pipeline &pipeline_;
    Clock::time_point begin_; // of the op that runs
    std::vector<OpTotal> totals_;
};

} // namespace keel
