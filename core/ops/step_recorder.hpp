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

// Steps that queue the same ops time after time, on a backend that serves keel.replay/1: recorded once, submitted again.
//
// Within a step it is handed each op in the place of the backend, and compares it, arg by arg, with the steps that are on record: buffers,
// offsets, shapes, strides, scalars, weights, plans. A step that is one of them to its end is submitted as a whole; at the first op that
// differs the step is recorded anew. So nobody has to know what may change between two steps (a cache that grew, an eviction, another
// sequence's turn), and what is out of date is never used. What cannot be recorded (a read or a write in the midst of a step, an op on
// another backend) turns the step into an ordinary one, from the op on where it was met; and after some that were recorded in vain the
// next ones are not tried.
//
// Not thread-safe: for the stream's user. Executor drives it.
class StepRecorder final : private BufferWatch, private HeldBackOps {
  public:
    // NULL where the backend does not serve the extension, or too little of it.
    static std::unique_ptr<StepRecorder> make(Device &device);
    ~StepRecorder();
    StepRecorder(const StepRecorder &) = delete;
    StepRecorder &operator=(const StepRecorder &) = delete;

    const std::string &how() const {
        return how_;
    } // the backend's words for its recordings; may be empty
    void begin();
    // An op of the step, its plan and weight filled in. False: the caller calls the backend as ever.
    bool take(const PlannedOp &op, const keel_op_args *args);
    // What comes now no recording can hold: the ops that were taken are queued one by one, and the step goes on as an ordinary one.
    void interrupt() override;
    void end();                // the step's ops are queued when it returns
    void abandon() noexcept;   // in the place of end(), after an error
    uint64_t recorded() const; // steps, so far

  private:
    enum class State { outside, ordinary, comparing, recording };
    struct RecordedOp {
        RecordedOp(keel_op op, const keel_op_args *a, const std::vector<std::byte> &b)
            : call(op, a), bytes(b) {}
        OpCall call;
        std::vector<std::byte> bytes; // that it is known by
    };
    using Ops = std::vector<std::unique_ptr<RecordedOp>>;
    struct Recording {
        keel_recording *handle = nullptr;
        Ops ops;
        std::unordered_set<const void *> uses; // buffers, weights, plans
        uint64_t used = 0;                     // the step that used it last
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
    Recording *current_ = nullptr;          // comparing: with whom
    std::vector<const PlannedOp *> labels_; // of the step's ops so far
    Ops fresh_;                             // recording: the step's ops so far
    std::vector<std::byte> bytes_;          // of the op that is looked at
    OpCall call_;                           // the same
    std::exception_ptr failure_;            // of an interrupt where nothing may be thrown
    uint64_t step_ = 0, recorded_ = 0;
    uint32_t misses_ = 0, skip_ = 0; // recordings in vain, one after the other; steps not to try
};

} // namespace keel
