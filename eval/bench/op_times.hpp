#pragma once

#include "device/device.hpp"
#include "run/pipeline.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// The work of a call of an op, independent of the kernel. 0: not counted.
struct OpWork {
    // Of matmul, attention, and scores of several queries (which multiply the keys again): two
    // operations for each product that is added to a sum.
    double flop = 0;
    double bytes = 0; // weights, K and V of the slots in use, and each input and output once
};
// `args`: as in the call. The slots in use are read back from the device. Not counted: ops that
// move a cache (kv_gather, kv_rerotate), and scores over ranges of slots.
OpWork op_work(Device &device, const PlannedOp &op, const keel_op_args *args);

// Is the op limited by the peak of f32 multiply-adds that the bench measures (probes/flops.hpp)? It
// is if it runs on the processor in f32. A kernel named "fast" multiplies in 8 or 16 bits, so it
// may be faster than this peak.
bool f32_peak_limits(const Device &device, const PlannedOp &op);

// The calls of one part of the model with one kernel. A part is for example "down", in all layers.
struct OpTotal {
    std::string part, op, kernel;
    uint64_t calls = 0;
    double seconds = 0, flop = 0, bytes = 0; // of all calls
    bool f32_peak_limits = false;            // as the function f32_peak_limits() returns it

    double flops() const { return seconds > 0 ? flop / seconds : 0; } // operations per second
    // Bytes per second.
    double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

// Times every op of a pipeline's engines while it lives. It waits for the device after each op, so
// on a device with a queue it shows the time of the op alone, not its share of a step. While it
// lives, steps are neither recorded for resubmission nor queued ahead. It does not time the ops
// that sequences in a batch share (keel.batched_decode/1). Use it on the thread that runs the
// pipeline. The pipeline must outlive it.
class OpTimes {
  public:
    explicit OpTimes(Pipeline &pipeline);
    ~OpTimes();
    OpTimes(const OpTimes &) = delete;
    OpTimes &operator=(const OpTimes &) = delete;

    // In the order of their first run.
    const std::vector<OpTotal> &totals() const { return totals_; }

  private:
    void add(Device &device, const PlannedOp &op, const keel_op_args *args, double seconds);

    using Clock = std::chrono::steady_clock;
    Pipeline &pipeline_;
    Clock::time_point begin_; // start of the running op
    std::vector<OpTotal> totals_;
};

} // namespace keel
