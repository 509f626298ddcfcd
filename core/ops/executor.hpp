#pragma once

#include "ops/ladder.hpp"
#include "ops/step_recorder.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace keel {

// Runs a pipeline's ops on a device, in order. If the backend does not have an op, the Ladder
// decides what runs it. Not thread-safe.
class Executor {
  public:
    struct Options {
        bool strict = false;              // true: an op that is not native is an error
        std::shared_ptr<Device> fallback; // the config's fallback backend; NULL: only the reference
        SyncStrategy sync;
        bool replay = true; // steps can be recorded and submitted again
        bool ahead = true;  // steps can be queued before their token is known
    };
    // Called before and after every op of the pipeline, but not for the ops of a composition. In
    // the call before the op, the op's inputs are unchanged.
    using Observer = std::function<void(const PlannedOp &, const keel_op_args *args, bool after)>;

    Executor(std::shared_ptr<Device> device, Options options);

    Device &device() const { return ladder_.device(); }
    Stream &stream() const { return device().stream(); }

    // can_record() returns true if the backend can record steps (keel.replay/1). recording_words()
    // returns the backend's own description of a recording.
    bool can_record() const { return recorder_ != nullptr; }
    const std::string &recording_words() const { return recorder_->how(); }
    // Returns the reason why steps with this number of ops are not recorded and submitted again.
    // Empty if they are recorded.
    std::string why_not_recorded(size_t ops) const;

    // Returns the reason why decode does not run ahead (a step that runs ahead is queued before the
    // host knows the step's token). Empty if decode can run ahead: the device runs in parallel with
    // the host, and no planned op makes the host wait.
    std::string why_not_ahead() const;
    bool can_run_ahead() const {
        return ahead_ && !observer_ && !any_fallback() && stream().reads_later();
    }

    // Plans an op, see Ladder::settle. If Options::strict is set, throws for an op that is not
    // native.
    template <typename Args>
    OpHandle plan(keel_op op, Args args, const OpTag &tag, Weight *weight = nullptr) {
        return ladder_.settle(op, reinterpret_cast<keel_op_args *>(&args), tag, weight);
    }
    // Queues the op. First sets `plan` and `weight` in the args.
    template <typename Args> void run(PlannedOp &op, Args args) {
        run_any(op, reinterpret_cast<keel_op_args *>(&args));
    }
    void run_any(PlannedOp &op, keel_op_args *args);

    // Encloses the `ops` ops of a step that is likely to be repeated. At the end of the step the
    // backend gets the ops, if possible as one recording. Write buffers before the step and read
    // results after the step. Reads and writes during the step also give correct results, but then
    // the step is not recorded.
    class Step {
      public:
        Step(Executor &executor, size_t ops) : recorder_(executor.recorder_for(ops)) {
            if (recorder_ != nullptr) recorder_->begin();
        }
        ~Step() {
            if (recorder_ != nullptr) recorder_->abandon();
        }
        Step(const Step &) = delete;
        Step &operator=(const Step &) = delete;
        void end() {
            if (recorder_ != nullptr) recorder_->end();
            recorder_ = nullptr;
        }

      private:
        StepRecorder *recorder_;
    };

    // From now on the trace records ops and the stream's submits and waits. NULL: no trace. The
    // trace must outlive this object, or the caller must set NULL before it destroys the trace.
    void set_trace(Trace *trace) { ladder_.set_trace(trace); }
    void set_observer(Observer observer) { observer_ = std::move(observer); }
    // Sets an observer. Its destructor restores the previous observer. The executor must outlive
    // this object.
    class Watch {
      public:
        Watch(Executor &executor, Observer observer)
            : executor_(executor), before_(std::exchange(executor.observer_, std::move(observer))) {
        }
        ~Watch() { executor_.observer_ = std::move(before_); }
        Watch(const Watch &) = delete;
        Watch &operator=(const Watch &) = delete;

      private:
        Executor &executor_;
        Observer before_;
    };

    // Returns the best kind of buffer for tensors that several ops use. If an op runs on another
    // device, this is a kind that the host can access. Call it after all ops were planned.
    keel_buffer_kind placement() const { return ladder_.placement(); }
    bool any_fallback() const { return ladder_.any_fallback(); }
    // Returns a lost device that ops need: the executor's own device, or a device to which ops fall
    // back. Returns NULL if no device was lost. After a loss this executor runs no more ops.
    const Device *lost_device() const { return ladder_.lost_device(); }
    // Bytes that fallbacks have copied between devices so far.
    uint64_t crossed_bytes() const { return ladder_.crossed_bytes(); }

  private:
    enum class NotRecorded { none, no_extension, off, eager, batched, traced, observed };

    NotRecorded not_recorded(size_t ops) const;
    StepRecorder *recorder_for(size_t ops) const;
    void run_observed(PlannedOp &op, keel_op_args *args);
    void run_here(PlannedOp &op, keel_op_args *args);

    Ladder ladder_;
    std::unique_ptr<StepRecorder> recorder_; // NULL: the backend cannot record steps
    bool replay_, ahead_;                    // from Options
    Observer observer_;
    int depth_ = 0; // above 0: inside a composition
};

} // namespace keel
