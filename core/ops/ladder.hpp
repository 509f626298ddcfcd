#pragma once

#include "ops/crossing.hpp"
#include "ops/planned_op.hpp"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// The fallback ladder: decides what runs an op that the backend may not have. The rungs are the
// backend's own op, a composition of its smaller ops, the fallback backend, and the core's
// reference. An op is settled (its rung is chosen) when it is planned.
class Ladder {
  public:
    // `fallback`: the fallback backend, or NULL. `strict`: true makes every op that is not native
    // an error.
    Ladder(std::shared_ptr<Device> device, std::shared_ptr<Device> fallback, bool strict);

    Device &device() const { return *device_; }

    // `args` is a template, as keel_backend.op_plan requires. settle() prepares `weight` on the
    // device that will run the op, and sets the members for the weight in `args`.
    OpHandle settle(keel_op op, keel_op_args *args, const OpTag &tag, Weight *weight);
    // Returns NULL if the device itself does not have this op. If the result is NULL and `reason`
    // is not, `reason` gets the reason.
    OpHandle settle_native(keel_op op, keel_op_args *args, const OpTag &tag, Weight *weight,
                           std::string *reason = nullptr);
    template <typename Args>
    OpHandle settle_native(keel_op op, Args args, const OpTag &tag, Weight *weight = nullptr) {
        return settle_native(op, reinterpret_cast<keel_op_args *>(&args), tag, weight);
    }
    // Call it if the backend refused a call of the op. Settles the op on the next rung and logs a
    // warning.
    void demote(PlannedOp &op, keel_op_args *args);
    // Returns the crossing to the other device on which an op is settled.
    Crossing &crossing(const PlannedOp &op) { return crossing_to(op.device_); }
    // Returns memory for the intermediate result of a composition. All compositions use the same
    // memory, so the memory is valid until the next composed op.
    Tensor scratch(const keel_tensor &like);

    // Returns the best kind of buffer for tensors that several ops use. If an op runs on another
    // device, this is a kind that the host can access. Call it after all ops were planned.
    keel_buffer_kind placement() const;
    bool any_fallback() const { return crossings_planned_ > 0; }
    // Returns a lost device that ops need, or NULL if no device was lost.
    const Device *lost_device() const;
    uint64_t crossed_bytes() const; // bytes copied between devices so far
    void set_trace(Trace *trace);
    [[noreturn]] void fail(const PlannedOp &op, Device &device, keel_status status) const;

  private:
    void check_template(keel_op op, keel_op_args *args, const OpTag &tag, const Weight *weight);
    bool settle_elsewhere(PlannedOp &op, keel_op_args *args);
    bool settle_on(PlannedOp &op, keel_op_args *args, const std::shared_ptr<Device> &target,
                   Rung rung);
    void read_info(PlannedOp &op, Device &device, keel_plan *plan);
    Crossing &crossing_to(const std::shared_ptr<Device> &target);

    std::shared_ptr<Device> device_, fallback_, reference_;
    bool strict_;
    std::vector<std::unique_ptr<Crossing>> crossings_;
    uint64_t crossings_planned_ = 0;
    BufferPtr scratch_;                                   // the largest so far
    std::set<std::pair<keel_op, std::string>> warned_of_; // demotions: op and reason
};

} // namespace keel
