#pragma once

#include "device/device.hpp"
#include "device/weight.hpp"
#include "ops/crossing.hpp"
#include "ops/op_args.hpp"
#include "ops/op_tag.hpp"
#include "ops/step_recorder.hpp"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// Which step of the fallback ladder an op stands on.
enum class Rung {
    native,    // the backend's own op
    composed,  // made of the backend's smaller ops
    fallback,  // on the fallback backend that the config names
    reference, // on the core's reference
};
const char *rung_name(Rung rung);

class Executor;

// An op made of several smaller ones on the same device (compose.cpp).
class Composition {
  public:
    virtual ~Composition() = default;
    virtual void run(Executor &executor, const keel_op_args *args) = 0;
    virtual std::string kernel() const = 0; // "matmul + add_bias"
};

// An op of the pipeline with everything settled: rung, kernel, plan. Made by Executor::plan, destroyed before the executor.
class PlannedOp {
  public:
    ~PlannedOp();
    PlannedOp(const PlannedOp &) = delete;
    PlannedOp &operator=(const PlannedOp &) = delete;

    keel_op op() const { return op_; }
    const OpTag &tag() const { return tag_; }
    const std::string &label() const { return label_; } // "decode layer 3: down"
    // The end of the label: "down". It ends with a zero byte.
    std::string_view part() const { return std::string_view(label_).substr(part_at_); }
    Rung rung() const { return rung_; }
    const std::string &kernel() const { return kernel_; }
    const std::string &reason() const { return reason_; } // why not native; empty if it is
    uint64_t scratch_bytes() const { return scratch_bytes_; }
    uint64_t crossing_bytes() const {
        return crossing_bytes_;
    } // copied between devices per call at the planned shape; 0 if shared
    const Weight *weight() const { return weight_; }

  private:
    friend class Executor;
    PlannedOp(keel_op op, const OpTag &tag, Weight *weight)
        : op_(op), tag_(tag), label_(label_text(tag)),
          part_at_(label_.size() - part_text(tag).size()), weight_(weight) {}

    keel_op op_;
    OpTag tag_;
    std::string label_;
    size_t part_at_;
    Weight *weight_;
    Rung rung_ = Rung::native;
    std::string kernel_, reason_;
    uint64_t scratch_bytes_ = 0, crossing_bytes_ = 0;
    std::shared_ptr<Device> device_; // where it runs
    keel_plan *plan_ = nullptr;      // on device_
    std::unique_ptr<Composition> composition_;
    std::unique_ptr<ArgsTemplate>
        template_; // where the backend may still refuse a call: to settle it anew
};
using OpHandle = std::unique_ptr<PlannedOp>;

// Runs a pipeline's ops on a device. What a backend does not have goes down the fallback ladder, settled when the op is planned:
// composed of the backend's smaller ops; the fallback backend; the core's reference. Not thread-safe.
class Executor {
  public:
    struct Options {
        bool strict = false;              // anything but native is an error
        std::shared_ptr<Device> fallback; // the config's; NULL: the reference only
        SyncStrategy sync;
        bool replay = true; // steps may be recorded and submitted again
        bool ahead = true;  // steps may be queued before their token is known
    };
    // Called round every op of the pipeline (not inside compositions): for compare and tracing. `after` false: inputs are still
    // what they were.
    using Observer = std::function<void(const PlannedOp &, const keel_op_args *args, bool after)>;

    Executor(std::shared_ptr<Device> device, Options options);

    Device &device() const { return *device_; }
    Stream &stream() const { return device_->stream(); }

    // Whether the backend records steps at all (keel.replay/1), and in which way, in its own words.
    bool can_record() const { return recorder_ != nullptr; }
    const std::string &recording_words() const { return recorder_->how(); }
    // Why steps of so many ops are not recorded and submitted again; empty: they are.
    std::string why_not_recorded(size_t ops) const;

    // Why no step is queued before its token is known; empty: the device runs beside the host, and nothing that is planned makes it wait.
    std::string why_not_ahead() const;
    bool can_run_ahead() const {
        return options_.ahead && !observer_ && crossings_planned_ == 0 &&
               device_->stream().reads_later();
    }

    // Settles an op. `args` is a template as keel_backend.op_plan wants it; its weight (and w) members are filled in from `weight`,
    // which is made ready where the op will run. With strict an op that is not native throws.
    template <typename Args>
    OpHandle plan(keel_op op, Args args, const OpTag &tag, Weight *weight = nullptr) {
        return plan_any(op, reinterpret_cast<keel_op_args *>(&args), tag, weight);
    }
    // As plan, but NULL if the device has no such op of its own.
    template <typename Args>
    OpHandle plan_native(keel_op op, Args args, const OpTag &tag, Weight *weight = nullptr) {
        return try_native(op, reinterpret_cast<keel_op_args *>(&args), tag, weight, nullptr);
    }
    // Queues the op. Fills in the args' plan and weight.
    template <typename Args>
    void run(PlannedOp &op, Args args) {
        run_any(op, reinterpret_cast<keel_op_args *>(&args));
    }
    void run_any(PlannedOp &op, keel_op_args *args);

    // Around the ops of a step of some `ops` ops that is likely to come again just so: the backend gets them at the end, as one recording
    // where it can. Buffers' contents are written before it, and what is read of it is read behind it; both in its midst are right, too,
    // but then there is no recording.
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

    // Ops, and what the stream does, are recorded there from now on; NULL: nowhere. It outlives this, or NULL is set before it goes.
    void set_trace(Trace *trace);
    void set_observer(Observer observer) { observer_ = std::move(observer); }
    // Sets an observer while it lives, then restores the one before. The executor outlives it.
    class Watch {
      public:
        Watch(Executor &executor, Observer observer)
            : executor_(executor), before_(std::exchange(executor.observer_, std::move(observer))) {}
        ~Watch() { executor_.observer_ = std::move(before_); }
        Watch(const Watch &) = delete;
        Watch &operator=(const Watch &) = delete;

      private:
        Executor &executor_;
        Observer before_;
    };
    // Memory for a composition's intermediate result, good until the next composed op: all of them use the same.
    Tensor scratch(const keel_tensor &like);

    // How buffers that ops share are best made, once all is planned: visible to the host if an op runs elsewhere.
    keel_buffer_kind placement() const;
    bool any_fallback() const { return crossings_planned_ > 0; }
    // A device that ops need and that was lost: its own, or one that they fall back to; NULL: all are there. What runs through this
    // executor is at its end then, whichever of them it was.
    const Device *lost_device() const;
    // Bytes that fallbacks have copied between devices so far.
    uint64_t crossed_bytes() const;

  private:
    OpHandle plan_any(keel_op op, keel_op_args *args, const OpTag &tag, Weight *weight);
    OpHandle try_native(keel_op op, keel_op_args *args, const OpTag &tag, Weight *weight,
                        std::string *reason);
    bool settle_elsewhere(PlannedOp &op, keel_op_args *args);
    bool settle_on(PlannedOp &op, keel_op_args *args, const std::shared_ptr<Device> &target,
                   Rung rung);
    void check_template(keel_op op, keel_op_args *args, const OpTag &tag, const Weight *weight);
    void demote(PlannedOp &op, keel_op_args *args);
    void run_observed(PlannedOp &op, keel_op_args *args);
    void run_here(PlannedOp &op, keel_op_args *args);
    Crossing &crossing_to(const std::shared_ptr<Device> &target);
    StepRecorder *recorder_for(size_t ops) const;
    [[noreturn]] void fail(const PlannedOp &op, Device &device, keel_status status);

    std::shared_ptr<Device> device_;
    Options options_;
    std::shared_ptr<Device> reference_;
    std::vector<std::unique_ptr<Crossing>> crossings_;
    uint64_t crossings_planned_ = 0;
    BufferPtr scratch_;                                   // the largest so far
    std::set<std::pair<keel_op, std::string>> warned_of_; // demotions: op and reason
    Observer observer_;
    int depth_ = 0;                          // above 0: inside a composition
    std::unique_ptr<StepRecorder> recorder_; // NULL: the backend has none
};

// Points args at a weight as it lies on a device. Ops without a weight are left alone.
void set_weight(keel_op op, keel_op_args *args, const Weight *weight, const Device &device);

} // namespace keel
