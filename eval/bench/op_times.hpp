#pragma once

#include "device/device.hpp"
#include "run/pipeline.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace keel {

// The work of one call of an op. The work does not depend on the kernel. 0 means that the work is
// not counted.
struct OpWork {
    // Number of floating-point operations. Only matmul, attention and attention scores are counted.
    // A call of attention with several queries and with scores multiplies queries and keys a second
    // time for the scores. So the products of queries and keys count twice. Each multiply-add
    // counts as two operations.
    double flop = 0;
    double bytes = 0; // bytes of the weights, of K and V of the slots in use, and of each input and
                      // output; each of them counts once
};
// Computes the work of a call with the arguments `args`. Reads the slots in use back from the
// device. Ops that move a cache (kv_gather, kv_rerotate) and scores over ranges of slots are not
// counted.
OpWork op_work(Device &device, const PlannedOp &op, const keel_op_args *args);

// True if the f32 peak limits the op. The f32 peak is the peak of f32 multiply-adds, which
// probes/flops.hpp measures. The f32 peak limits ops that run on the processor in f32. A kernel
// named "fast" multiplies in 8 or 16 bits, so the kernel can be faster than the f32 peak.
bool f32_peak_limits(const Device &device, const PlannedOp &op);

// The sum over all calls of one part of the model with one kernel. A part is for example "down"
// (the down projection) in all layers.
struct OpTotal {
    std::string part, op, kernel;
    uint64_t calls = 0;
    double seconds = 0, flop = 0, bytes = 0; // sums over all calls
    bool f32_peak_limits = false;            // the result of f32_peak_limits()

    double flops() const { return seconds > 0 ? flop / seconds : 0; } // operations per second
    // Bytes per second of all calls.
    double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

// While an OpTimes object exists, the object times every op of a pipeline's engines. The object
// waits for the device after each op. So on a device with a queue the object measures the time of
// the op alone, not the op's share of a step. While the object exists, steps are not recorded for
// resubmission and not queued ahead. Ops that sequences of a batch share (keel.batched_decode/1)
// are not timed. Use the object only on the thread that runs the pipeline. The pipeline must
// outlive the object.
class OpTimes {
  public:
    explicit OpTimes(Pipeline &pipeline);
    ~OpTimes();
    OpTimes(const OpTimes &) = delete;
    OpTimes &operator=(const OpTimes &) = delete;

    // The totals in the order in which the ops first ran.
    const std::vector<OpTotal> &totals() const { return totals_; }

  private:
    void add(Device &device, const PlannedOp &op, const keel_op_args *args, double seconds);

    using Clock = std::chrono::steady_clock;
    Pipeline &pipeline_;
    Clock::time_point begin_; // start of the op that is running
    std::vector<OpTotal> totals_;
};

} // namespace keel
