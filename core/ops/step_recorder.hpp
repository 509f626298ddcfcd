#pragma once

#include "device/device.hpp"
#include "ops/op_call.hpp"

#include <keel/ext/draft/replay.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace keel {

class PlannedOp;

// Records steps that queue the same ops again and again. Submits the recording instead of the ops.
// Needs a backend that serves keel.replay/1.
//
// During a step the recorder gets each op instead of the backend. It compares the op with the
// recorded steps: buffers, offsets, shapes, strides, scalars, weights, plans. If a step is equal to
// a recording, the recorder submits the recording. At the first op that differs, the recorder
// records the step again. So it never uses an outdated recording. Other code need not report what
// changed between two steps, for example a larger cache, an eviction or another sequence. Some
// steps cannot be recorded, because of a read or a write within the step, or an op on another
// backend. Such a step continues as an ordinary step. After several recordings that were never
// used, the recorder skips some steps.
//
// Not thread-safe: only the user of the stream may call it. Executor calls it.
class StepRecorder final : private BufferWatch, private HeldBackOps {
  public:
    // Returns NULL if the backend does not have the extension, or if its table is too small.
    static std::unique_ptr<StepRecorder> make(Device &device);
    ~StepRecorder();
    StepRecorder(const StepRecorder &) = delete;
    StepRecorder &operator=(const StepRecorder &) = delete;

    // Returns the backend's own description of a recording (keel_replay.how). It can be empty.
    const std::string &how() const { return how_; }
    void begin();
    // Takes an op of the step. The caller has already set `plan` and `weight` in the args. Returns
    // false if the caller must call the backend itself.
    bool take(const PlannedOp &op, const keel_op_args *args);
    // Call it before a call that cannot be recorded. Queues the ops that were taken so far one by
    // one. Then the step continues as an ordinary step.
    void interrupt() override;
    void end();                // ends the step; all its ops are queued when the function returns
    void abandon() noexcept;   // call it instead of end() after an error
    uint64_t recorded() const; // number of steps that were recorded so far

  private:
    enum class State { outside, ordinary, comparing, recording };
    struct RecordedOp {
        RecordedOp(keel_op op, const keel_op_args *a, const std::vector<std::byte> &b)
            : call(op, a), bytes(b) {}
        OpCall call;
        std::vector<std::byte> bytes; // result of OpCall::bytes(), for comparisons
    };
    using Ops = std::vector<std::unique_ptr<RecordedOp>>;
    struct Recording {
        keel_recording *handle = nullptr;
        Ops ops;
        std::unordered_set<const void *> uses; // buffers, weights, plans
        uint64_t used = 0;                     // number of the last step that used it
    };

    StepRecorder(Device &device, const keel_replay &table);
    void before_destroy(const keel_buffer *buffer) noexcept override { forget(buffer); }
    void before_destroy_other(const void *handle) noexcept override { forget(handle); }
    void forget(const void *handle) noexcept;
    bool fits_current() const;
    bool change_over();
    bool record_from_here();
    bool keep_recording(const PlannedOp &op, const keel_op_args *args);
    void throw_away() noexcept;
    void queue_one_by_one();
    void submit(Recording &recording, bool again);
    void file(keel_recording *handle);
    void note_miss();
    void destroy(Recording &recording) noexcept;

    Device &device_;
    keel_replay table_;
    std::string how_;
    State state_ = State::outside;
    std::vector<std::unique_ptr<Recording>> kept_;
    Recording *current_ = nullptr;          // in state comparing: the recording to compare with
    std::vector<const PlannedOp *> labels_; // the step's ops so far
    Ops fresh_;                             // in state recording: the step's ops so far
    std::vector<std::byte> bytes_;          // OpCall::bytes() of call_
    OpCall call_;                           // the op that is compared now
    std::exception_ptr failure_;            // an error that occurred in a place that must not throw
    uint64_t step_ = 0, recorded_ = 0;
    // The number of consecutive recordings that were never used, and the number of steps to skip
    // before the next try.
    uint32_t misses_ = 0, skip_ = 0;
};

} // namespace keel
